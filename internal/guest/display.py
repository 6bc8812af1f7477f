"""What the kernel shows: MIME bundles, images, matplotlib's figures. Part of kernel.py, which see; wire is its."""
import io
import sys


def emit(stream, data):
    """Sends the best form of a MIME bundle: an image, else text."""
    for mime in ("image/png", "image/jpeg"):
        if mime in data:
            return image(mime, data[mime])
    plain = data.get("text/plain", "")
    if not plain or plain.startswith("<IPython.core.display."):
        plain = data.get("text/markdown") or data.get("text/latex") or plain
    if plain:
        wire.text(stream, plain + "\n" if stream == DISPLAYED else plain)


def image(mime, data):
    if isinstance(data, str):
        import binascii
        data = binascii.a2b_base64(data)
    if mime != "image/png":
        try:
            from PIL import Image
            data, mime = pil_png(Image.open(io.BytesIO(data))), "image/png"
        except ImportError:
            pass
    wire.image(mime, data)


def pil_png(picture):
    out = io.BytesIO()
    if picture.mode not in ("1", "L", "LA", "I", "P", "RGB", "RGBA"):
        picture = picture.convert("RGB")
    picture.save(out, "PNG")
    return out.getvalue()


class Figures:
    """Shows matplotlib's figures as inline backends do: at plt.show(), and those still open at the end of a cell. Each state once."""

    def __init__(self):
        self.shown = []  # the figures of this cell with their pictures

    def png(self, figure):
        out = io.BytesIO()
        figure.savefig(out, format="png", bbox_inches="tight")
        self.shown.append((figure, out.getvalue()))
        return out.getvalue()

    def show_one(self, figure, *_, **__):
        image("image/png", self.png(figure))

    def flush(self):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums"):
            return
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            before = [picture for f, picture in self.shown if f is figure]
            try:
                if len(figure.get_children()) > 1:  # more than its background
                    picture = self.png(figure)
                    if picture not in before:
                        image("image/png", picture)
            finally:
                pyplot.close(figure)


class Hooks:
    """A meta path finder that changes a few modules right after they are imported, so that they need not be imported to start."""

    def __init__(self, figures):
        self.fixes = {"matplotlib.pyplot": self.pyplot, "PIL.Image": self.pil}
        self.figures = figures

    def find_spec(self, name, path=None, target=None):
        fix = self.fixes.pop(name, None)
        if fix is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                break
        else:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            try:
                load(module)
            except BaseException:
                self.fixes[name] = fix
                raise
            fix(module)

        spec.loader.exec_module = exec_module
        return spec

    def pyplot(self, module):
        def show(*_, block=None, **__):  # a function, since pyplot sets its attributes
            if block is not False:  # a moving picture: its last state is shown at the end of the cell
                self.figures.flush()

        module.show = show
        sys.modules["matplotlib.figure"].Figure.show = lambda figure, *_, **__: self.figures.show_one(figure)

    def pil(self, module):
        module.Image.show = lambda picture, *_, **__: image("image/png", pil_png(picture))
