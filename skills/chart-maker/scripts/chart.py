#!/usr/bin/env python3
"""Draws one chart from a table, in a style that can be read, and says what it drew."""
import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import FuncFormatter, PercentFormatter

MOST_SERIES = 8


def load(path):
    kind = path.suffix.lower()
    if kind in (".xlsx", ".xlsm"):
        return pd.read_excel(path)
    if kind == ".json":
        return pd.read_json(path)
    if kind == ".jsonl":
        return pd.read_json(path, lines=True)
    return pd.read_csv(path, sep=None, engine="python", encoding="utf-8-sig")


def warn(text):
    print("warning: " + text)


def need(frame, names):
    missing = [n for n in names if n and n not in frame.columns]
    if missing:
        sys.exit(f"no column {', '.join(map(repr, missing))}: there are {', '.join(map(str, frame.columns))}")


def numbers(frame, names):
    for name in names:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            converted = pd.to_numeric(frame[name].astype(str).str.replace(r"[\s,$€£]", "", regex=True), errors="coerce")
            lost = int((converted.isna() & frame[name].notna()).sum())
            if lost == frame[name].notna().sum():
                sys.exit(f"the column {name!r} has no numbers")
            if lost:
                warn(f"{lost} values of {name!r} are no numbers and are left out")
            frame[name] = converted
    return frame


def dates(frame, name):
    """Turns a text column of dates into dates, so that the axis has their distances."""
    if not pd.api.types.is_object_dtype(frame[name]) or not frame[name].astype(str).str.contains(r"\d{4}[-/.]\d", regex=True).all():
        return frame
    parsed = pd.to_datetime(frame[name], errors="coerce")
    if parsed.notna().all():
        frame[name] = parsed
    return frame


def shape(frame, args):
    """One row for each x, one column for each series."""
    frame = dates(numbers(frame.copy(), args.y), args.x).dropna(subset=[args.x])
    keys = [args.x] + ([args.by] if args.by else [])
    if args.by and len(args.y) > 1:
        sys.exit("--by splits one column: name one with --y")
    repeated = int(frame.duplicated(keys).sum())
    if repeated and not args.agg:
        sys.exit(f"{repeated} rows repeat a value of {' and '.join(keys)}: say how to combine them with --agg sum, mean, median or count")
    if args.by:
        table = frame.pivot_table(index=args.x, columns=args.by, values=args.y[0], aggfunc=args.agg or "first")
    else:
        table = frame.groupby(args.x, sort=False)[args.y].agg(args.agg or "first")
    if pd.api.types.is_numeric_dtype(table.index) or pd.api.types.is_datetime64_any_dtype(table.index):
        return table.sort_index()
    if args.kind in ("bar", "barh") and not args.keep_order:
        table = table.loc[table.sum(axis=1).sort_values(ascending=False).index]
    return table


def top(table, n):
    if not n or len(table) <= n:
        return table
    order = table.sum(axis=1).sort_values(ascending=False).index
    rest = table.loc[order[n:]].sum()
    print(f"the {len(table) - n} smallest are drawn as Other")
    return pd.concat([table.loc[order[:n]], pd.DataFrame([rest], index=["Other"])])


def draw(frame, args, ax):
    if args.kind == "hist":
        frame = numbers(frame.copy(), args.y)
        for name in args.y:
            ax.hist(frame[name].dropna(), bins="auto", alpha=0.75 if len(args.y) > 1 else 1, label=name)
        ax.set_ylabel("count")
        return len(frame)
    if args.kind == "box":
        frame = numbers(frame.copy(), args.y[:1])
        groups = [(k, g[args.y[0]].dropna()) for k, g in frame.groupby(args.x)] if args.x else [(n, frame[n].dropna()) for n in args.y]
        ax.boxplot([g for _, g in groups], labels=[str(k) for k, _ in groups], showfliers=True)
        return sum(len(g) for _, g in groups)
    if args.kind == "scatter":
        frame = numbers(frame.copy(), args.y + ([args.x] if not pd.api.types.is_datetime64_any_dtype(frame[args.x]) else []))
        for key, part in frame.groupby(args.by) if args.by else [(args.y[0], frame)]:
            ax.scatter(part[args.x], part[args.y[0]], s=22, alpha=0.7, label=str(key))
        return len(frame.dropna(subset=[args.x, args.y[0]]))
    table = top(shape(frame, args), args.top)
    if table.shape[1] > MOST_SERIES:
        warn(f"{table.shape[1]} series are more than colours can tell apart: choose some, or use heatmap")
    if args.kind == "heatmap":
        image = ax.imshow(table.to_numpy(float), aspect="auto", cmap="viridis")
        ax.set_xticks(range(table.shape[1]), [str(c) for c in table.columns], rotation=45, ha="right")
        ax.set_yticks(range(len(table)), [str(i) for i in table.index])
        ax.grid(False)
        ax.figure.colorbar(image, ax=ax, label=args.ylabel or args.y[0])
        return int(table.size)
    if args.kind in ("bar", "barh"):
        if len(table) > 30:
            warn(f"{len(table)} bars: --top 15 would be easier to read")
        table = table[::-1] if args.kind == "barh" else table
        table.index = [f"{i:%Y-%m-%d}" if hasattr(i, "strftime") else str(i) for i in table.index]
        table.plot(kind=args.kind, ax=ax, width=0.8, legend=False, rot=0 if args.kind == "barh" or max(map(len, table.index)) < 9 else 45)
        ax.grid(axis="y" if args.kind == "barh" else "x", visible=False)
    elif args.kind == "area":
        ax.stackplot(table.index, table.fillna(0).to_numpy().T, labels=[str(c) for c in table.columns], alpha=0.85)
    else:
        for name in table.columns:
            ax.plot(table.index, table[name], label=str(name), marker="o" if len(table) <= 30 else None, markersize=4)
    return int(table.notna().to_numpy().sum())


def finish(args, ax):
    ax.set_title(args.title or "")
    value, other = (ax.xaxis, ax.yaxis) if args.kind == "barh" else (ax.yaxis, ax.xaxis)
    if args.kind not in ("heatmap",):
        if args.percent:
            value.set_major_formatter(PercentFormatter(1.0 if args.percent == "fraction" else 100.0))
        elif not args.log:
            value.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))
        if args.log:
            (ax.set_xscale if args.kind == "barh" else ax.set_yscale)("log")
    if args.kind == "barh":
        ax.set_xlabel(args.ylabel or ", ".join(args.y))
        ax.set_ylabel(args.xlabel or "")
    elif args.kind == "hist":
        ax.set_xlabel(args.xlabel or ", ".join(args.y))
    else:
        ax.set_xlabel(args.xlabel if args.xlabel is not None else (args.x or ""))
        if args.kind != "heatmap":
            ax.set_ylabel(args.ylabel if args.ylabel is not None else (args.y[0] if len(args.y) == 1 else ""))
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) > 1:
        ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1))
    if args.source:
        ax.figure.text(0.01, -0.04, "Source: " + args.source, fontsize=8, color="#666666")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--kind", required=True, choices=["line", "area", "bar", "barh", "scatter", "hist", "box", "heatmap"])
    parser.add_argument("--x")
    parser.add_argument("--y", nargs="+", required=True)
    parser.add_argument("--by")
    parser.add_argument("--agg", choices=["sum", "mean", "median", "count"])
    parser.add_argument("--top", type=int)
    parser.add_argument("--keep-order", action="store_true", help="bars as in the data, not the largest first")
    parser.add_argument("--title")
    parser.add_argument("--xlabel")
    parser.add_argument("--ylabel")
    parser.add_argument("--source")
    parser.add_argument("--percent", choices=["fraction", "hundred"], help="values are 0..1 or 0..100")
    parser.add_argument("--log", action="store_true")
    parser.add_argument("-o", "--out", type=Path, default=Path("chart.png"))
    args = parser.parse_args()
    if args.x is None and args.kind not in ("hist", "box"):
        parser.error("--x is needed for this kind")
    if args.out.suffix.lower() not in (".png", ".svg", ".pdf"):
        parser.error("-o must end in .png, .svg or .pdf")
    frame = load(args.data)
    need(frame, [args.x, args.by] + args.y)
    plt.style.use(str(Path(__file__).with_name("clear.mplstyle")))
    figure, ax = plt.subplots()
    drawn = draw(frame, args, ax)
    finish(args, ax)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out)
    print(f"{args.kind} of {', '.join(args.y)}: {drawn} values from {len(frame)} rows, written to {args.out}")


if __name__ == "__main__":
    main()
