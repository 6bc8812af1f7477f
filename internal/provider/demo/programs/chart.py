for name, value in zip(names, values):
    print(f"{name} = {value}", flush=True)

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.figure(figsize=(8, 5))
    plt.bar(names, values, color="#2a6f97")
    plt.title(title)
    plt.xticks(rotation=45)
    plt.tight_layout()
    plt.savefig("chart.png")
    plt.close()
except ImportError:
    # This Python has no matplotlib: draw the bars by hand.
    import struct
    import zlib

    width, height, margin = 800, 500, 50
    pixels = bytearray(b"\xff" * (width * height * 3))
    digits = dict(zip("0123456789-.", (
        "75557 26227 71747 71717 55711 74717 74757 71111 75757 75717 00700 00002").split()))

    def box(x, y, w, h, colour):
        for row in range(max(y, 0), min(y + h, height)):
            left, right = max(x, 0), min(x + w, width)
            at = (row * width + left) * 3
            if right > left:
                pixels[at:at + (right - left) * 3] = bytes(colour) * (right - left)

    def write(x, y, text, size=2):
        for char in text:
            for line, bits in enumerate(digits.get(char, "00000")):
                for column in range(3):
                    if int(bits) & 4 >> column:
                        box(x + column * size, y + line * size, size, size, (40, 40, 40))
            x += 4 * size

    low, high = min(0, *values), max(0, *values)
    span = (high - low) or 1

    def level(value):
        return round(height - margin - (value - low) / span * (height - 2 * margin))

    for step in range(5):
        box(margin, level(low + span * step / 4), width - 2 * margin, 1, (220, 220, 220))
        write(4, level(low + span * step / 4) - 4, f"{low + span * step / 4:.5g}"[:6])
    slot = (width - 2 * margin) / len(values)
    for i, value in enumerate(values):
        x, top, base = round(margin + i * slot + slot * 0.15), level(value), level(0)
        box(x, min(top, base), max(round(slot * 0.7), 1), max(abs(base - top), 1), (42, 111, 151))
        write(x, min(top, base) - 14, f"{value:.6g}")
        write(x, height - margin + 8, str(i + 1))
    box(margin, level(0), width - 2 * margin, 2, (40, 40, 40))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[y * width * 3:(y + 1) * width * 3] for y in range(height))
    with open("chart.png", "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n")
        f.write(chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)))
        f.write(chunk(b"IDAT", zlib.compress(rows)))
        f.write(chunk(b"IEND", b""))
