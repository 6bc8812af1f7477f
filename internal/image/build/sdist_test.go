package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"testing"
)

// sdist is a source distribution whose setup.py leaves a mark.
func sdist(t *testing.T, mark string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range map[string]string{
		"source-1.0/setup.py": fmt.Sprintf("open(%q, 'w').close()\nfrom setuptools import setup\nsetup(name='source', version='1.0')\n", mark),
		"source-1.0/PKG-INFO": "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	_ = z.Close()
	return b.Bytes()
}
