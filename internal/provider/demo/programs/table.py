import csv

rows = [(n, n**2, n**3, round(n**0.5, 4)) for n in range(1, count + 1)]
header = ("n", "square", "cube", "root")
with open("table.csv", "w", newline="") as f:
    csv.writer(f).writerows([header, *rows])

print("| " + " | ".join(header) + " |")
print("|" + " --- |" * len(header))
for row in rows:
    print("| " + " | ".join(map(str, row)) + " |", flush=True)
