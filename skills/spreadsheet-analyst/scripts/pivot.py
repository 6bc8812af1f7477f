#!/usr/bin/env python3
"""Aggregates a sheet by groups into a new workbook: a table with a total row of formulas, and a chart."""
import argparse
import sys
from pathlib import Path

import pandas as pd
from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.utils import get_column_letter

TOTALS = {"sum": "SUM", "count": "SUM", "mean": "AVERAGE", "median": "MEDIAN", "min": "MIN", "max": "MAX"}


def load(path, sheet, header):
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        return pd.read_excel(path, sheet_name=sheet if sheet is not None else 0, header=header - 1)
    return pd.read_csv(path, sep=None, engine="python", header=header - 1, encoding="utf-8-sig")


def need(frame, names):
    missing = [n for n in names if n not in frame.columns]
    if missing:
        sys.exit(f"no column {', '.join(map(repr, missing))}: there are {', '.join(map(str, frame.columns))}")


def aggregate(frame, args):
    need(frame, args.by + [args.value] + ([args.columns] if args.columns else []))
    if args.agg != "count":
        numbers = pd.to_numeric(frame[args.value], errors="coerce")
        lost = int((numbers.isna() & frame[args.value].notna()).sum())
        if lost:
            print(f"note: {lost} values of {args.value!r} are no numbers and were left out", file=sys.stderr)
        frame = frame.assign(**{args.value: numbers})
    blank = int(frame[args.by].isna().any(axis=1).sum())
    if blank:
        print(f"note: {blank} rows without a value in {', '.join(args.by)} are grouped as (blank)", file=sys.stderr)
        for name in args.by:
            frame[name] = frame[name].astype(object).where(frame[name].notna(), "(blank)")
    table = frame.pivot_table(index=args.by, columns=args.columns, values=args.value, aggfunc=args.agg, sort=True)
    if not args.columns:
        table.columns = [f"{args.agg} of {args.value}"]
        if args.sort:
            table = table.sort_values(table.columns[0], ascending=False)
    return table.reset_index()


def plain(value):
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value.to_pydatetime() if hasattr(value, "to_pydatetime") else value


def write(table, args):
    book = Workbook()
    sheet = book.active
    sheet.title = "Summary"
    head = PatternFill("solid", fgColor="1F3864")
    for c, name in enumerate(table.columns, 1):
        cell = sheet.cell(1, c, str(name))
        cell.font, cell.fill, cell.alignment = Font(bold=True, color="FFFFFF"), head, Alignment(horizontal="center")
    for r, row in enumerate(table.itertuples(index=False), 2):
        for c, value in enumerate(row, 1):
            cell = sheet.cell(r, c, plain(value))
            if c > len(args.by):
                cell.number_format = "#,##0" if args.agg == "count" else "#,##0.00"
    last = len(table) + 1
    sheet.cell(last + 1, 1, "Total" if TOTALS[args.agg] == "SUM" else TOTALS[args.agg].capitalize()).font = Font(bold=True)
    for c in range(len(args.by) + 1, table.shape[1] + 1):
        letter = get_column_letter(c)
        cell = sheet.cell(last + 1, c, f"={TOTALS[args.agg]}({letter}2:{letter}{last})")
        cell.font, cell.number_format = Font(bold=True), sheet.cell(2, c).number_format
    for c, name in enumerate(table.columns, 1):
        longest = max([len(str(name))] + [len(str(v)) for v in table[name].head(500)])
        sheet.column_dimensions[get_column_letter(c)].width = min(max(longest + 3, 10), 50)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{get_column_letter(table.shape[1])}{last}"
    if 1 < len(table) <= 60:
        chart = BarChart()
        chart.title, chart.height, chart.width = f"{args.agg} of {args.value} by {', '.join(args.by)}", 9, 18
        chart.add_data(Reference(sheet, min_col=len(args.by) + 1, max_col=table.shape[1], min_row=1, max_row=last), titles_from_data=True)
        chart.set_categories(Reference(sheet, min_col=len(args.by), min_row=2, max_row=last))
        if table.shape[1] == len(args.by) + 1:
            chart.legend = None
        sheet.add_chart(chart, f"{get_column_letter(table.shape[1] + 2)}2")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    book.save(args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--by", nargs="+", required=True, help="columns to group by")
    parser.add_argument("--columns", help="a column whose values are spread across")
    parser.add_argument("--value", required=True, help="the column to aggregate")
    parser.add_argument("--agg", choices=sorted(TOTALS), default="sum")
    parser.add_argument("--sheet", help="its name; the first by default")
    parser.add_argument("--header", type=int, default=1, help="row of the header, from 1")
    parser.add_argument("--sort", action="store_true", help="largest first instead of by group")
    parser.add_argument("-o", "--out", type=Path, default=Path("summary.xlsx"))
    args = parser.parse_args()
    frame = load(args.file, args.sheet, args.header)
    table = aggregate(frame, args)
    write(table, args)
    print(table.to_string(index=False))
    print(f"\n{len(frame)} rows in {len(table)} groups; written to {args.out}")


if __name__ == "__main__":
    main()
