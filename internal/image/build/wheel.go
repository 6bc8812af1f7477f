package build

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// stubWheel writes a wheel without content: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
func stubWheel(dir, name, version string) error {
	base := name + "-" + version
	f, err := os.Create(filepath.Join(dir, base+"-py3-none-any.whl"))
	if err != nil {
		return err
	}
	z := zip.NewWriter(f)
	info := base + ".dist-info/"
	for _, file := range [][2]string{
		{"METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)},
		{"WHEEL", "Wheel-Version: 1.0\nGenerator: lathe\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"RECORD", info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		out, err := z.Create(info + file[0])
		if err == nil {
			_, err = out.Write([]byte(file[1]))
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(z.Close(), f.Close())
}
