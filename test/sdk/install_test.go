package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// cached returns a folder in .cache for what file pins, and fills it with install if it is not complete. Other runs of the tests wait.
func cached(t *testing.T, file string, install func(folder string, pins []byte)) string {
	t.Helper()
	pins, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(pins)
	folder, err := filepath.Abs(filepath.Join(".cache", filepath.Base(filepath.Dir(file))+"-"+hex.EncodeToString(sum[:6])))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(folder + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	complete := filepath.Join(folder, ".complete")
	if _, err := os.Stat(complete); err == nil {
		return folder
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	install(folder, pins)
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

func command(t *testing.T, folder, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// pythonWith returns a Python that has what requirements pins.
func pythonWith(t *testing.T, requirements string) string {
	t.Helper()
	return filepath.Join(cached(t, requirements, func(folder string, pins []byte) {
		command(t, folder, "python3", "-m", "venv", "venv")
		if err := os.WriteFile(filepath.Join(folder, "requirements.txt"), pins, 0o644); err != nil {
			t.Fatal(err)
		}
		command(t, folder, "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check",
			"-r", "requirements.txt")
	}), "venv/bin/python")
}

// npmInstall returns a folder with the packages that manifest pins, one of which is node itself: the SDK wants a newer one than
// distributions have.
func npmInstall(t *testing.T, manifest string) string {
	t.Helper()
	return cached(t, manifest, func(folder string, pins []byte) {
		if err := os.WriteFile(filepath.Join(folder, "package.json"), pins, 0o644); err != nil {
			t.Fatal(err)
		}
		command(t, folder, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
	})
}
