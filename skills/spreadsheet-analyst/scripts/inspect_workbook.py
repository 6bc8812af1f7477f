#!/usr/bin/env python3
"""Says what is in a workbook or CSV file: sheets, columns, types, gaps, formulas, errors."""
import argparse
import csv
import sys
from pathlib import Path

import openpyxl
import pandas as pd

ERRORS = {"#REF!", "#DIV/0!", "#N/A", "#VALUE!", "#NAME?", "#NULL!", "#NUM!"}


def header_row(rows):
    """The first row (from 1) with text in most of its used width: titles and blank rows often stand above."""
    width = max((sum(v is not None and v != "" for v in r) for r in rows), default=0)
    for i, row in enumerate(rows, 1):
        texts = sum(isinstance(v, str) and v.strip() != "" for v in row)
        if width and texts >= max(1, 0.6 * width):
            return i
    return 1


def number_like(series):
    """The share of a text column that would be numbers without signs for thousands, currency and percent."""
    cleaned = series.astype(str).str.replace(r"[\s,$€£%']", "", regex=True)
    return pd.to_numeric(cleaned, errors="coerce").notna().mean()


def describe(frame):
    print(f"  rows: {len(frame)}, columns: {frame.shape[1]}, duplicate rows: {int(frame.duplicated().sum())}")
    for name in frame.columns:
        col = frame[name]
        present = col.dropna()
        line = f"  - {name!s}: {col.isna().sum()} blank"
        if present.empty:
            print(line + ", no values")
            continue
        if pd.api.types.is_bool_dtype(present):
            line += f", boolean, {int(present.sum())} true"
        elif pd.api.types.is_numeric_dtype(present):
            line += f", number, min {present.min():g}, mean {present.mean():g}, max {present.max():g}, sum {present.sum():g}"
        elif pd.api.types.is_datetime64_any_dtype(present):
            line += f", date, {present.min():%Y-%m-%d} to {present.max():%Y-%m-%d}"
        else:
            common = ", ".join(f"{str(k)[:30]!r} x{v}" for k, v in present.astype(str).value_counts().head(4).items())
            line += f", text, {present.nunique()} different: {common}"
            share = number_like(present)
            if share > 0.8:
                line += f"  ** {share:.0%} look like numbers stored as text **"
        print(line)


def workbook(path, args):
    plain = openpyxl.load_workbook(path)  # formulas
    values = openpyxl.load_workbook(path, data_only=True)  # what Excel last computed
    for sheet in plain.worksheets:
        computed = values[sheet.title]
        state = "" if sheet.sheet_state == "visible" else f" ({sheet.sheet_state})"
        print(f"sheet {sheet.title!r}{state}: {sheet.dimensions}")
        formulas, stale, errors = 0, 0, []
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    formulas += 1
                    stale += computed[cell.coordinate].value is None
                shown = computed[cell.coordinate].value
                if isinstance(shown, str) and shown in ERRORS:
                    errors.append(f"{cell.coordinate} {shown}")
        if formulas:
            print(f"  formulas: {formulas}" + (f", {stale} without a computed value (open and save in Excel to get them)" if stale else ""))
        if errors:
            print(f"  error cells: {len(errors)}: " + ", ".join(errors[:10]))
        if sheet.merged_cells.ranges:
            print("  merged: " + ", ".join(str(r) for r in list(sheet.merged_cells.ranges)[:10]))
        hidden = [k for k, d in sheet.column_dimensions.items() if d.hidden]
        if hidden:
            print("  hidden columns: " + ", ".join(hidden))
        rows = [[c.value for c in r] for r in computed.iter_rows(max_row=min(computed.max_row or 1, 20))]
        if not any(v is not None for r in rows for v in r):
            print("  empty")
            continue
        header = args.header or header_row(rows)
        print(f"  header in row {header}" + ("" if header == 1 else f": use --header {header}, or header={header - 1} in pandas"))
        describe(pd.read_excel(path, sheet_name=sheet.title, header=header - 1))


def text(path, args):
    raw = path.read_bytes()
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            sample = raw.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    try:
        delimiter = csv.Sniffer().sniff(sample[:20000], delimiters=",;\t|").delimiter
    except csv.Error:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    print(f"text table, encoding {encoding}, delimiter {delimiter!r}")
    describe(pd.read_csv(path, sep=delimiter, encoding=encoding, header=(args.header or 1) - 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--header", type=int, help="row of the header, from 1")
    args = parser.parse_args()
    if not args.file.exists():
        sys.exit(f"{args.file} is not there: look with ls")
    print(f"{args.file.name}: {args.file.stat().st_size} bytes")
    if args.file.suffix.lower() in (".xlsx", ".xlsm"):
        workbook(args.file, args)
    elif args.file.suffix.lower() == ".xls":
        sys.exit("the old .xls form cannot be read here: ask the user to save it as .xlsx")
    else:
        text(args.file, args)


if __name__ == "__main__":
    main()
