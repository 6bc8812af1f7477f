import sys

with open(sys.argv[1], "wb") as f:
    f.write(bytes(range(256)) * 40)
print("stamped")
