#!/usr/bin/env python3
"""Cleans a table and logs every change: encoding, spaces, missing values, numbers, dates, duplicates, names of columns."""
import argparse
import csv
import re
import sys
import unicodedata
from collections import Counter
from datetime import datetime
from pathlib import Path

import pandas as pd

MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "unknown", "missing"}
MONTHS = {m: i for i, names in enumerate((("jan",), ("feb",), ("mar", "mär", "mrz"), ("apr",), ("may", "mai"), ("jun",), ("jul",), ("aug",), ("sep",), ("oct", "okt"), ("nov",), ("dec", "dez")), 1) for m in names}
SPACES = re.compile(r"[\s\u00a0\u200b\ufeff]+")


class Log:
    def __init__(self):
        self.rows, self.counts = [], Counter()

    def add(self, row, column, old, new, why):
        self.rows.append((row, column, old, new, why))
        self.counts[why] += 1


def read(path, sheet):
    """Every cell as text, exactly as it is: types are decided later, column by column."""
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        frame = pd.read_excel(path, sheet_name=sheet or 0, header=None, dtype=object)
        frame = frame.apply(lambda col: col.map(lambda v: "" if pd.isna(v) else v.strftime("%Y-%m-%d") if isinstance(v, (datetime, pd.Timestamp)) and v.time() == datetime.min.time()
                                                else v.isoformat(sep=" ") if isinstance(v, (datetime, pd.Timestamp)) else repr(v) if isinstance(v, float) and not v.is_integer() else str(int(v)) if isinstance(v, float) else str(v)))
        return frame.values.tolist(), "workbook", None
    raw = path.read_bytes()
    for encoding in ("utf-8-sig", "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "cp1252", "latin-1"):
        try:
            text = raw.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    try:
        delimiter = csv.Sniffer().sniff(text[:20000], delimiters=",;\t|").delimiter
    except csv.Error:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    return [r for r in csv.reader(text.splitlines(), delimiter=delimiter)], encoding, delimiter


def headers(row, mode):
    out, seen = [], Counter()
    for i, name in enumerate(row, 1):
        name = SPACES.sub(" ", str(name)).strip()
        if mode == "snake":
            plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode() or name
            name = re.sub(r"[^0-9A-Za-z]+", "_", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", plain)).strip("_").lower()
        name = name or f"column_{i}"
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return out


NUMBER = re.compile(r"^[(+-]?\s*[$€£]?\s*[+-]?\d[\d.,'\u202f\u00a0 ]*\s*[$€£%]?\)?-?$")


def number(text, decimal):
    """The plain form of a number, None if it is none, "?" if it can be read in two ways."""
    s = text.strip()
    if not NUMBER.match(s) or re.match(r"^0\d+$", s):  # a leading zero is of a code, not of a number
        return None
    negative = s.startswith("(") and s.endswith(")") or s.endswith("-") or "-" in s[:3]
    percent = "%" in s
    s = re.sub(r"[^\d.,]", "", s)
    if "." in s and "," in s:
        mark = max(".", ",", key=s.rfind)
        s = s.replace("," if mark == "." else ".", "").replace(mark, ".")
    elif "," in s or "." in s:
        mark = "," if "," in s else "."
        groups = s.split(mark)
        thousands = len(groups) > 1 and all(len(g) == 3 for g in groups[1:]) and 1 <= len(groups[0]) <= 3 and groups[0] != "0"
        if len(groups) > 2:
            if not thousands:
                return None
            s = "".join(groups)
        elif thousands and not decimal:
            return "?"
        else:
            s = s.replace(mark, ".") if not thousands or decimal == mark else "".join(groups)
    if s.count(".") > 1:
        return None
    value = ("-" if negative else "") + s
    if percent:
        value = repr(round(float(value) / 100, 12))
    return value.rstrip("0").rstrip(".") if "." in value and not percent else value


def date(text, order):
    """The ISO form of a date, None if it is none, "?" if day and month may be swapped."""
    s = text.strip().rstrip(".")
    if m := re.match(r"^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.\d+)?Z?)?$", s):
        y, mo, d, clock = m.groups()
    elif m := re.match(r"^(\d{1,2})[-/. ](\d{1,2})[-/. ](\d{4}|\d{2})$", s):
        a, b, y = m.groups()
        clock = None
        if int(a) > 12 >= int(b):
            d, mo = a, b
        elif int(b) > 12 >= int(a):
            mo, d = a, b
        elif a == b:
            d = mo = a
        elif order:
            d, mo = (a, b) if order == "dmy" else (b, a)
        else:
            return "?"
    elif m := re.match(r"^(?:(\d{1,2})[. -]*)?([A-Za-zäÄ]{3,})[. -]*(?:(\d{1,2})(?:st|nd|rd|th)?,?\s+)?(\d{4})$", s):
        d, mo, y, clock = m.group(1) or m.group(3), MONTHS.get(m.group(2)[:3].lower()), m.group(4), None
        if not d or not mo:
            return None
    else:
        return None
    year = int(y) + (2000 if len(str(y)) == 2 and int(y) < 70 else 1900 if len(str(y)) == 2 else 0)
    try:
        day = datetime(year, int(mo), int(d))
    except ValueError:
        return None
    return day.strftime("%Y-%m-%d") + (" " + clock if clock else "")


def convert(column, values, lines, args, log, notes):
    """Decides what a column holds by most of its values, and brings those into one form."""
    present = [v for v in values if v != ""]
    if not present:
        return values
    for what, read_as, setting in (("date", lambda v: date(v, args.dates), "--dates dmy or mdy"), ("number", lambda v: number(v, args.decimal), "--decimal , or .")):
        read_values = {v: read_as(v) for v in set(present)}
        good = sum(read_values[v] is not None for v in present)
        if good < 0.8 * len(present):
            continue
        unclear = sum(read_values[v] == "?" for v in present)
        if unclear:
            example = next(v for v in present if read_values[v] == "?")
            notes.append(f"{column}: {unclear} {what}s such as {example!r} can be read in two ways: left as they are; say {setting}")
            return values
        for row, v in enumerate(values):
            if v == "":
                continue
            new = read_values[v]
            if new is None:
                log.add(lines[row], column, v, v, f"unreadable as {what}")
            elif new != v:
                log.add(lines[row], column, v, new, f"{what} in one form")
                values[row] = new
        return values
    return spellings(column, values, lines, args, log, notes)


def spellings(column, values, lines, args, log, notes):
    groups = {}
    for v in values:
        if v:
            groups.setdefault(unicodedata.normalize("NFKC", v).casefold().rstrip("."), Counter())[v] += 1
    several = {k: c for k, c in groups.items() if len(c) > 1}
    if not several:
        return values
    if column not in args.merge:
        shown = "; ".join(", ".join(f"{v!r} x{n}" for v, n in c.most_common(4)) for c in list(several.values())[:3])
        notes.append(f"{column}: {len(several)} values are spelled in several ways ({shown}): left as they are; say --merge {column}")
        return values
    for row, v in enumerate(values):
        best = several.get(unicodedata.normalize("NFKC", v).casefold().rstrip("."))
        if v and best and (new := best.most_common(1)[0][0]) != v:
            log.add(lines[row], column, v, new, "spelling merged")
            values[row] = new
    return values


def clean(table, args):
    log, notes = Log(), []
    first = 1  # the line of the header
    while table and not any(str(v).strip() for v in table[0]):
        table, first = table[1:], first + 1
    if not table:
        sys.exit("the table is empty")
    names = headers(table[0], args.headers)
    for old, new in zip(table[0], names):
        if old != new:
            log.add(first, new, old, new, "column renamed")
    rows = []
    for n, raw in enumerate(table[1:], first + 1):
        if len(raw) > len(names) and any(str(v).strip() for v in raw[len(names):]):
            notes.append(f"row {n} has {len(raw)} values for {len(names)} columns: what is too much was put into the last column")
            raw = raw[:len(names) - 1] + [" | ".join(str(v) for v in raw[len(names) - 1:])]
        row = []
        for name, value in zip(names, (list(raw) + [""] * len(names))[:len(names)]):
            new = SPACES.sub(" ", unicodedata.normalize("NFC", str(value))).strip()
            if new.casefold() in MISSING:
                if new:
                    log.add(n, name, value, "", "missing value")
                new = ""
            elif new != value:
                log.add(n, name, value, new, "stray spaces")
            row.append(new)
        rows.append((n, row))
    kept = [(n, r) for n, r in rows if any(r)]
    lines = [n for n, _ in kept]
    if len(kept) < len(rows):
        log.counts["blank row removed"] += len(rows) - len(kept)
    columns = [convert(name, [r[i] for _, r in kept], lines, args, log, notes) for i, name in enumerate(names)]
    frame = pd.DataFrame(dict(zip(names, columns)), columns=names)
    empty = [c for c in frame.columns if (frame[c] == "").all()]
    if empty:
        notes.append("columns without any value, kept: " + ", ".join(empty))
    if not args.keep_duplicates:
        double = frame.duplicated()
        for row in frame.index[double]:
            log.add(lines[row], "", " | ".join(frame.loc[row]), "", "duplicate row removed")
        frame = frame[~double]
    return frame, log, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("clean.csv"))
    parser.add_argument("--check", action="store_true", help="only say what would be done")
    parser.add_argument("--sheet")
    parser.add_argument("--dates", choices=["dmy", "mdy"])
    parser.add_argument("--decimal", choices=[",", "."])
    parser.add_argument("--merge", nargs="*", default=[], help="columns whose spellings are merged")
    parser.add_argument("--headers", choices=["snake", "as-is"], default="snake")
    parser.add_argument("--keep-duplicates", action="store_true")
    args = parser.parse_args()
    if not args.file.is_file():
        sys.exit(f"{args.file} is not there: look with ls")
    table, encoding, delimiter = read(args.file, args.sheet)
    frame, log, notes = clean(table, args)
    print(f"{args.file.name}: {encoding}" + (f", delimiter {delimiter!r}" if delimiter else "") + f", {len(table)} lines")
    for why, n in sorted(log.counts.items()):
        print(f"  {n:6d}  {why}")
    for note in notes[:50]:
        print("  note: " + note)
    if args.check:
        for row, column, old, new, why in log.rows[:20]:
            print(f"  e.g. row {row}, {column}: {old!r} -> {new!r} ({why})")
        print(f"nothing written; it would be {len(frame)} rows and {frame.shape[1]} columns")
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(args.out, index=False, encoding="utf-8")
    changes = args.out.with_suffix(".changes.csv")
    with changes.open("w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows([("row", "column", "old", "new", "reason")] + log.rows)
    print(f"{len(frame)} rows and {frame.shape[1]} columns written to {args.out}; {len(log.rows)} changes in {changes}")


if __name__ == "__main__":
    main()
