package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// testOutput: order, amount and bytes of output.
func testOutput(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	t.Run("order between streams", func(t *testing.T) {
		o := p.Must(t, "import sys\nfor i in range(40):\n    print(i, file=sys.stderr if i % 2 else sys.stdout)")
		var want strings.Builder
		for i := range 40 {
			fmt.Fprintln(&want, i)
		}
		if got := o.Text(""); got != want.String() {
			t.Errorf("got %q", got)
		}
	})
	t.Run("order with a subprocess, a display and a result", func(t *testing.T) {
		o := p.Must(t, "import subprocess\nprint('1')\nsubprocess.run(['echo', '2'])\ndisplay('3')\nprint('4', file=sys.stderr)\nprint('5')\n'6'")
		if got := strings.NewReplacer("\n", "", "'", "").Replace(o.Text("")); got != "123456" {
			t.Errorf("got %q", o.Text(""))
		}
	})
	t.Run("invalid UTF-8", func(t *testing.T) {
		o := p.Must(t, "import os\nos.write(1, b'a\\xff\\xfeb\\xc3'); None")
		if got := o.Text(sandbox.Stdout); got != "a\uFFFDb\uFFFD" && got != "a\uFFFD\uFFFDb\uFFFD" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a character in two writes", func(t *testing.T) {
		o := p.Must(t, "import time\nfor byte in '€🙂'.encode():\n    os.write(1, bytes([byte])); time.sleep(0.01)\nNone")
		if got := o.Text(sandbox.Stdout); got != "€🙂" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("much", func(t *testing.T) {
		const want = 12 << 20
		o := p.Must(t, fmt.Sprintf("for _ in range(%d): os.write(1, b'x' * 4096)\n'end'", want/4096))
		if got := int64(len(o.Text(sandbox.Stdout))); got != want || o.Truncated != 0 || o.Text(sandbox.Value) != "'end'" {
			t.Errorf("got %d bytes, %d truncated, want %d and the result %q", got, o.Truncated, want, o.Text(sandbox.Value))
		}
	})
	t.Run("cap", func(t *testing.T) { testCap(t, b) })
	t.Run("a long text of the last expression", func(t *testing.T) {
		if o := p.Must(t, "'r' * 3000000"); len(o.Text(sandbox.Value)) != 3000002 {
			t.Errorf("got %d bytes", len(o.Text(sandbox.Value)))
		}
	})
	t.Run("no sink", func(t *testing.T) {
		r, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Code: "print('unseen')"}, nil)
		if err != nil || r.Status != sandbox.StatusOK {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func testCap(t *testing.T, b sandbox.Backend) {
	const limit = 64 << 10
	p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Output = limit })
	const written = 20 << 20
	o := p.Must(t, fmt.Sprintf("import os\nfor _ in range(%d): os.write(1, b'x' * 4096)\n", written/4096))
	if got := int64(len(o.Text(""))); got != limit || got+o.Truncated != written {
		t.Errorf("got %d bytes, %d truncated, of %d with a limit of %d", got, o.Truncated, written, limit)
	}
	if o := p.Must(t, "print('again')"); o.Text("") != "again\n" || o.Truncated != 0 {
		t.Errorf("the limit is per call, but then got %q, %d truncated", o.Text(""), o.Truncated)
	}
	o = p.Bash(t, "head -c 10000000 /dev/zero | tr '\\0' y; echo err >&2")
	if got := int64(len(o.Text(""))); o.Status != sandbox.StatusOK || got != limit || got+o.Truncated != 10000000+4 {
		t.Errorf("bash: %+v with %d bytes", *o.Result, got)
	}
}

// testLive: output comes while the program runs. The program waits for a file that the test makes once it has seen a line.
func testLive(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	tests := map[string]sandbox.Call{
		"python stdout":     {Kind: sandbox.Python, Code: "print('now')\n" + waitFor("FILE") + "print('then')"},
		"python stderr":     {Kind: sandbox.Python, Code: "import sys\nprint('now', file=sys.stderr)\n" + waitFor("FILE") + "print('then')"},
		"python flush":      {Kind: sandbox.Python, Code: "print('now', end='', flush=True)\n" + waitFor("FILE") + "print('then')"},
		"python subprocess": {Kind: sandbox.Python, Code: "import os\nos.system('echo now')\n" + waitFor("FILE") + "print('then')"},
		"python display":    {Kind: sandbox.Python, Code: "display('now')\n" + waitFor("FILE") + "print('then')"},
		"bash stdout":       {Kind: sandbox.Bash, Code: "echo now; until [ -e FILE ]; do sleep 0.02; done; echo then"},
		"bash stderr":       {Kind: sandbox.Bash, Code: "echo now >&2; until [ -e FILE ]; do sleep 0.02; done; echo then"},
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			file := strings.ReplaceAll(name, " ", "-")
			call.Code = strings.ReplaceAll(call.Code, "FILE", file)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var seen string
			r, err := p.Sandbox.Exec(ctx, call, func(o sandbox.Output) {
				if seen += o.Text; strings.Contains(seen, "now") {
					p.touch(t, file)
				}
			})
			if err != nil || r.Status != sandbox.StatusOK || !strings.Contains(seen, "then") {
				t.Errorf("%+v, %v: the line did not come before the program's end; got %q", r, err, seen)
			}
		})
	}
}

// testDisplay: figures and images. It needs matplotlib or pillow where the programs run.
func testDisplay(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	t.Run("text", func(t *testing.T) {
		o := p.Must(t, "display({'a': 1})\nprint('after')")
		if got := o.Text(sandbox.Display); !strings.Contains(got, "{'a': 1}") || o.Text(sandbox.Value) != "" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("an object that draws itself", func(t *testing.T) {
		o := p.Must(t, `import zlib, struct
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
class Dot:
    def _repr_png_(self):
        return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 0, 0, 0, 0))
            + chunk(b'IDAT', zlib.compress(b'\0\0')) + chunk(b'IEND', b''))
display(Dot())
Dot()`)
		checkImages(t, o, 2)
	})
	t.Run("matplotlib", func(t *testing.T) { testFigures(t, p) })
	t.Run("pillow", func(t *testing.T) {
		needs(t, p, "PIL")
		checkImages(t, p.Must(t, "from PIL import Image\nim = Image.new('RGB', (20, 10), 'red')\ndisplay(im)\nim.show()\nim"), 3)
	})
	t.Run("IPython Image", func(t *testing.T) {
		needs(t, p, "PIL")
		needs(t, p, "IPython")
		o := p.Must(t, `import io, PIL.Image
from IPython.display import display, Image
im = PIL.Image.new('RGB', (20, 10), 'red')
for kind in 'PNG', 'JPEG':
    data = io.BytesIO()
    im.save(data, kind)
    display(Image(data=data.getvalue()))`)
		checkImages(t, o, 2)
	})
	t.Run("pandas", func(t *testing.T) {
		needs(t, p, "pandas")
		o := p.Must(t, "import pandas\ndf = pandas.DataFrame({'town': ['Bonn'], 'n': [7]})\ndisplay(df)\ndf")
		if want := "   town  n\n0  Bonn  7"; o.Text(sandbox.Value) != want || strings.TrimSpace(o.Text(sandbox.Display)) != strings.TrimSpace(want) {
			t.Errorf("displayed %q, result %q", o.Text(sandbox.Display), o.Text(sandbox.Value))
		}
	})
}

func testFigures(t *testing.T, p *Place) {
	needs(t, p, "matplotlib")
	cells := []struct {
		name, code string
		images     int
	}{
		{"show", "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", 1},
		{"left open", "plt.figure(); plt.plot([1, 2])\nplt.figure(); plt.plot([3, 4])\nNone", 2},
		{"shown once", "plt.plot([1, 2])\nplt.show()\nplt.show()", 1},
		{"the last expression", "fig, ax = plt.subplots()\nax.plot([1])\nfig", 1},
		{"fig.show", "fig, ax = plt.subplots()\nax.plot([1])\nfig.show()", 1},
		{"displayed", "fig, ax = plt.subplots()\nax.plot([1])\ndisplay(fig)", 1},
		{"shown, then changed", "fig, ax = plt.subplots()\nax.plot([1])\nfig.show()\nax.set_title('new')\nNone", 2},
		{"closed", "plt.plot([1])\nplt.savefig('saved.png')\nplt.close()", 0},
		{"nothing drawn", "plt.figure()\nNone", 0},
		{"another backend", "import matplotlib\nmatplotlib.use('Agg')\nplt.plot([1])\nplt.show()", 1},
		{"before an exception", "plt.plot([1])\nplt.show()\ntry:\n    1/0\nexcept ZeroDivisionError: pass", 1},
	}
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) { checkImages(t, p.Must(t, c.code), c.images) })
	}
	t.Run("order", func(t *testing.T) {
		o := p.Must(t, "print('before')\nplt.plot([1])\nplt.show()\nprint('after')")
		var order []string
		for _, out := range o.Outputs {
			order = append(order, strings.TrimSpace(out.Text)+out.MIME)
		}
		if got := strings.Join(order, ","); got != "before,image/png,after" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("magic", func(t *testing.T) {
		needs(t, p, "IPython")
		checkImages(t, p.Must(t, "%matplotlib inline\nplt.plot([1])\nplt.show()"), 1)
	})
	if p.size("saved.png") == 0 {
		t.Error("savefig wrote nothing")
	}
}

// needs skips a test where the programs have no such module.
func needs(t *testing.T, p *Place, module string) {
	t.Helper()
	if o := p.Python(t, "import "+module); o.Status != sandbox.StatusOK {
		t.Skipf("the sandbox's python has no %s: %s", module, o.Error)
	}
}

func checkImages(t *testing.T, o *Outcome, want int) {
	t.Helper()
	images := o.Images()
	if len(images) != want {
		t.Errorf("got %d images, want %d; text %q", len(images), want, o.Text(""))
	}
	for _, im := range images {
		if im.Stream != sandbox.Display || im.MIME != "image/png" {
			t.Errorf("an image came as %s %s", im.Stream, im.MIME)
		}
		if _, err := png.Decode(bytes.NewReader(im.Data)); err != nil {
			t.Errorf("not a PNG: %v", err)
		}
	}
}
