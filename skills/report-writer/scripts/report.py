#!/usr/bin/env python3
"""Turns Markdown into a Word document with real styles, lists, tables, images, page numbers and a table of contents."""
import argparse
import re
import struct
import sys
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
DRAW = ('xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"')
RELS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
TEXT_WIDTH = 9072  # of A4 with margins of 2.5 cm, in twentieths of a point
EMU_A_TWIP = 635


def clean(text):
    """XML has no control characters."""
    return "".join(c for c in text if c in "\t\n" or c >= " ")


class Document:
    def __init__(self, base):
        self.base, self.body, self.rels, self.media, self.numbers = base, [], [], [], 0
        self.count = {"headings": 0, "paragraphs": 0, "tables": 0, "images": 0}
        self.warnings = []

    def rel(self, kind, target, external=False):
        rid = f"rId{len(self.rels) + 10}"
        self.rels.append(f'<Relationship Id="{rid}" Type="{RELS}/{kind}" Target={quoteattr(target)}{" TargetMode=" + chr(34) + "External" + chr(34) if external else ""}/>')
        return rid

    def run(self, text, props=""):
        if not text:
            return ""
        return f'<w:r>{"<w:rPr>" + props + "</w:rPr>" if props else ""}<w:t xml:space="preserve">{escape(clean(text))}</w:t></w:r>'

    INLINE = re.compile(r"(`[^`]+`)|(\*\*.+?\*\*)|(\*[^*\s][^*]*?\*)|(\[[^\]]+\]\((?:https?://|mailto:)[^)\s]+\))")

    def inline(self, text, props=""):
        out, at = [], 0
        for m in self.INLINE.finditer(text):
            out.append(self.run(text[at:m.start()], props))
            at, whole = m.end(), m.group(0)
            if m.group(1):
                out.append(self.run(whole[1:-1], props + '<w:rFonts w:ascii="Consolas" w:hAnsi="Consolas"/><w:sz w:val="20"/>'))
            elif m.group(2):
                out.append(self.inline(whole[2:-2], props + "<w:b/>"))
            elif m.group(3):
                out.append(self.inline(whole[1:-1], props + "<w:i/>"))
            else:
                label, url = re.match(r"\[([^\]]+)\]\(([^)]+)\)", whole).groups()
                rid = self.rel("hyperlink", url, external=True)
                out.append(f'<w:hyperlink r:id="{rid}">{self.run(label, props + LINK)}</w:hyperlink>')
        out.append(self.run(text[at:], props))
        return "".join(out)

    def paragraph(self, text, style="", props="", rpr=""):
        inner = (f'<w:pStyle w:val="{style}"/>' if style else "") + props
        self.body.append(f'<w:p>{"<w:pPr>" + inner + "</w:pPr>" if inner else ""}{self.inline(text, rpr)}</w:p>')
        self.count["paragraphs"] += 1

    def heading(self, level, text):
        self.paragraph(text, f"Heading{level}")
        self.count["headings"] += 1

    def item(self, text, level, num):
        self.paragraph(text, "ListParagraph", f'<w:numPr><w:ilvl w:val="{min(level, 3)}"/><w:numId w:val="{num}"/></w:numPr>')

    def new_numbering(self):
        self.numbers += 1
        return self.numbers + 1  # 1 is the bullets'

    def code(self, lines):
        for line in lines or [""]:
            self.body.append(f'<w:p><w:pPr><w:pStyle w:val="Code"/></w:pPr>{self.run(line)}</w:p>')

    def table(self, rows, aligns):
        width = len(rows[0])
        for i, row in enumerate(rows):
            if len(row) != width:
                self.warnings.append(f"table {self.count['tables'] + 1}, row {i + 1}: {len(row)} cells instead of {width}")
                rows[i] = (row + [""] * width)[:width]
        longest = [max(3, max(len(r[c]) for r in rows)) for c in range(width)]
        total = sum(min(v, 60) for v in longest)
        widths = [max(600, TEXT_WIDTH * min(v, 60) // total) for v in longest]
        xml = ['<w:tbl><w:tblPr><w:tblStyle w:val="ReportTable"/><w:tblW w:w="5000" w:type="pct"/><w:tblLook w:firstRow="1" w:noVBand="1"/></w:tblPr><w:tblGrid>']
        xml += [f'<w:gridCol w:w="{w}"/>' for w in widths] + ["</w:tblGrid>"]
        for i, row in enumerate(rows):
            xml.append("<w:tr>" + ('<w:trPr><w:cantSplit/><w:tblHeader/></w:trPr>' if i == 0 else "<w:trPr><w:cantSplit/></w:trPr>"))
            for c, cell in enumerate(row):
                align = f'<w:jc w:val="{aligns[c]}"/>' if c < len(aligns) and aligns[c] != "left" else ""
                xml.append(f'<w:tc><w:tcPr><w:tcW w:w="{widths[c]}" w:type="dxa"/></w:tcPr><w:p><w:pPr><w:spacing w:after="0"/>{align}</w:pPr>'
                           f'{self.inline(cell, "<w:b/>" if i == 0 else "")}</w:p></w:tc>')
            xml.append("</w:tr>")
        self.body += ["".join(xml) + "</w:tbl>", '<w:p><w:pPr><w:spacing w:after="80"/></w:pPr></w:p>']
        self.count["tables"] += 1

    def image(self, caption, target):
        path = (self.base / target).resolve()
        size = image_size(path) if path.is_file() else None
        if size is None:
            self.warnings.append(f"the image {target} is missing, or is no PNG or JPEG")
            self.paragraph(f"[missing image: {target}]")
            return
        name = f"image{len(self.media) + 1}{path.suffix.lower()}"
        self.media.append((name, path.read_bytes()))
        rid = self.rel("image", "media/" + name)
        width = min(TEXT_WIDTH * EMU_A_TWIP, size[0] * 9525)
        height = width * size[1] // max(size[0], 1)
        n = len(self.media)
        self.body.append(
            f'<w:p><w:pPr><w:keepNext/><w:jc w:val="center"/></w:pPr><w:r><w:drawing><wp:inline><wp:extent cx="{width}" cy="{height}"/>'
            f'<wp:docPr id="{n}" name="{name}" descr={quoteattr(clean(caption))}/><a:graphic><a:graphicData uri="http://schemas.openxmlformats.org/drawingml/2006/picture">'
            f'<pic:pic><pic:nvPicPr><pic:cNvPr id="{n}" name="{name}"/><pic:cNvPicPr/></pic:nvPicPr><pic:blipFill><a:blip r:embed="{rid}"/><a:stretch><a:fillRect/></a:stretch></pic:blipFill>'
            f'<pic:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="{width}" cy="{height}"/></a:xfrm><a:prstGeom prst="rect"><a:avLst/></a:prstGeom></pic:spPr></pic:pic>'
            "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>")
        self.count["images"] += 1
        if caption:
            self.paragraph(f"Figure {self.count['images']}: {caption}", "Caption")


LINK = '<w:color w:val="0563C1"/><w:u w:val="single"/>'


def image_size(path):
    data = path.read_bytes()
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 24:
        return struct.unpack(">II", data[16:24])
    if data[:2] == b"\xff\xd8":
        at = 2
        while at + 9 < len(data):
            marker, length = data[at + 1], struct.unpack(">H", data[at + 2:at + 4])[0]
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = struct.unpack(">HH", data[at + 5:at + 9])
                return width, height
            at += 2 + length
    return None


def cells(line):
    return [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def convert(text, doc):
    lines, i, numbering = text.replace("\r\n", "\n").split("\n"), 0, None
    pending = []

    def flush():
        if pending:
            doc.paragraph(" ".join(pending))
            pending.clear()

    while i < len(lines):
        line = lines[i].rstrip()
        item = re.match(r"^(\s*)([-*+]|\d+[.)])\s+(.*)$", line)
        if item or not line.strip() or re.match(r"^(#{1,6}\s|```|\||>|!\[)", line) or line.strip() == "\\pagebreak":
            flush()
        if not item and line.strip():
            numbering = None
        if line.startswith("```"):
            end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith("```")), len(lines))
            doc.code(lines[i + 1:end])
            i = end
        elif m := re.match(r"^(#{1,6})\s+(.*?)\s*#*$", line):
            doc.heading(min(len(m.group(1)), 4), m.group(2))
        elif line.strip() == "\\pagebreak":
            doc.body.append('<w:p><w:r><w:br w:type="page"/></w:r></w:p>')
        elif line.startswith("|") and i + 1 < len(lines) and re.match(r"^\|?[\s:|-]+\|?$", lines[i + 1]) and "-" in lines[i + 1]:
            marks = cells(lines[i + 1])
            aligns = ["center" if m.startswith(":") and m.endswith(":") else "right" if m.endswith(":") else "left" for m in marks]
            end = next((j for j in range(i + 2, len(lines)) if not lines[j].startswith("|")), len(lines))
            doc.table([cells(lines[i])] + [cells(r) for r in lines[i + 2:end]], aligns)
            i = end - 1
        elif m := re.match(r"^!\[([^\]]*)\]\(([^)]+)\)\s*$", line):
            doc.image(m.group(1), m.group(2))
        elif item:
            level = len(item.group(1).replace("\t", "  ")) // 2
            if item.group(2) in "-*+":
                doc.item(item.group(3), level, 1)
            else:
                numbering = numbering or doc.new_numbering()
                doc.item(item.group(3), level, numbering)
        elif line.startswith(">"):
            doc.paragraph(line.lstrip("> "), "Quote")
        elif line.strip():
            pending.append(line.strip())
        i += 1
    flush()


def styles():
    def style(kind, sid, name, ppr="", rpr="", based="Normal", extra=""):
        base = f'<w:basedOn w:val="{based}"/>' if based and sid != "Normal" else ""
        return (f'<w:style w:type="{kind}" w:styleId="{sid}"{extra}><w:name w:val="{name}"/>{base}<w:qFormat/>'
                f'{"<w:pPr>" + ppr + "</w:pPr>" if ppr else ""}{"<w:rPr>" + rpr + "</w:rPr>" if rpr else ""}</w:style>')

    out = [HEAD, f"<w:styles {W}>", '<w:docDefaults><w:rPrDefault><w:rPr><w:rFonts w:ascii="Calibri" w:hAnsi="Calibri" w:cs="Calibri"/><w:sz w:val="22"/></w:rPr></w:rPrDefault></w:docDefaults>']
    out.append(style("paragraph", "Normal", "Normal", '<w:spacing w:after="140" w:line="276" w:lineRule="auto"/>', extra=' w:default="1"'))
    out.append(style("paragraph", "Title", "Title", '<w:spacing w:after="60"/>', '<w:b/><w:color w:val="1F3864"/><w:sz w:val="52"/>'))
    out.append(style("paragraph", "Subtitle", "Subtitle", '<w:spacing w:after="360"/>', '<w:color w:val="666666"/><w:sz w:val="22"/>'))
    for level, size in ((1, 32), (2, 27), (3, 24), (4, 22)):
        out.append(style("paragraph", f"Heading{level}", f"heading {level}", f'<w:keepNext/><w:spacing w:before="{400 - 50 * level}" w:after="100"/><w:outlineLvl w:val="{level - 1}"/>',
                         f'<w:b/><w:color w:val="1F3864"/><w:sz w:val="{size}"/>'))
    out.append(style("paragraph", "ListParagraph", "List Paragraph", '<w:spacing w:after="60"/>'))
    out.append(style("paragraph", "Caption", "caption", '<w:spacing w:after="200"/><w:jc w:val="center"/>', '<w:i/><w:color w:val="555555"/><w:sz w:val="19"/>'))
    out.append(style("paragraph", "Quote", "Quote", '<w:ind w:left="567" w:right="567"/>', '<w:i/><w:color w:val="444444"/>'))
    out.append(style("paragraph", "Code", "Code", '<w:shd w:val="clear" w:color="auto" w:fill="F2F2F2"/><w:spacing w:after="0" w:line="240" w:lineRule="auto"/>', '<w:rFonts w:ascii="Consolas" w:hAnsi="Consolas"/><w:sz w:val="18"/>'))
    border = "".join(f'<w:{s} w:val="single" w:sz="4" w:color="BFBFBF"/>' for s in ("top", "left", "bottom", "right", "insideH", "insideV"))
    out.append(f'<w:style w:type="table" w:styleId="ReportTable"><w:name w:val="Report Table"/><w:tblPr><w:tblBorders>{border}</w:tblBorders>'
               '<w:tblCellMar><w:top w:w="50" w:type="dxa"/><w:left w:w="90" w:type="dxa"/><w:bottom w:w="50" w:type="dxa"/><w:right w:w="90" w:type="dxa"/></w:tblCellMar></w:tblPr>'
               '<w:tblStylePr w:type="firstRow"><w:tcPr><w:shd w:val="clear" w:color="auto" w:fill="DCE6F2"/></w:tcPr></w:tblStylePr></w:style>')
    return "".join(out) + "</w:styles>"


def numbering(doc):
    def levels(make):
        return "".join(f'<w:lvl w:ilvl="{n}"><w:start w:val="1"/>{make(n)}<w:lvlJc w:val="left"/><w:pPr><w:ind w:left="{425 * (n + 1)}" w:hanging="360"/></w:pPr></w:lvl>' for n in range(4))

    bullets = levels(lambda n: f'<w:numFmt w:val="bullet"/><w:lvlText w:val="{"•–▪·"[n]}"/>')
    decimals = levels(lambda n: f'<w:numFmt w:val="{("decimal", "lowerLetter", "lowerRoman", "decimal")[n]}"/><w:lvlText w:val="%{n + 1}."/>')
    nums = '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    for n in range(doc.numbers):  # each list begins with 1
        nums += f'<w:num w:numId="{n + 2}"><w:abstractNumId w:val="1"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num>'
    return f'{HEAD}<w:numbering {W}><w:abstractNum w:abstractNumId="0">{bullets}</w:abstractNum><w:abstractNum w:abstractNumId="1">{decimals}</w:abstractNum>{nums}</w:numbering>'


def field(code, shown=""):
    return (f'<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText xml:space="preserve"> {code} </w:instrText></w:r>'
            f'<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>{shown}</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>')


def save(doc, args):
    front = []
    if args.title:
        front.append(f'<w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr>{doc.run(args.title)}</w:p>')
        by = ", ".join(v for v in (args.author, args.date) if v)
        front.append(f'<w:p><w:pPr><w:pStyle w:val="Subtitle"/></w:pPr>{doc.run(by)}</w:p>')
    if args.toc:
        front.append(f'<w:p>{field("TOC " + chr(92) + "o " + chr(34) + "1-3" + chr(34) + " " + chr(92) + "h", "Update this field to fill the table of contents.")}</w:p><w:p><w:r><w:br w:type="page"/></w:r></w:p>')
    page = ('<w:sectPr><w:footerReference w:type="default" r:id="rId3"/><w:pgSz w:w="11906" w:h="16838"/>'
            '<w:pgMar w:top="1417" w:right="1417" w:bottom="1417" w:left="1417" w:header="708" w:footer="708" w:gutter="0"/></w:sectPr>')
    document = f'{HEAD}<w:document {W} {DRAW}><w:body>{"".join(front + doc.body)}{page}</w:body></w:document>'
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = {
        "[Content_Types].xml": HEAD + '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/><Default Extension="png" ContentType="image/png"/><Default Extension="jpg" ContentType="image/jpeg"/><Default Extension="jpeg" ContentType="image/jpeg"/>'
        + "".join(f'<Override PartName="/{name}" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}+xml"/>' for name, kind in (
            ("word/document.xml", "document.main"), ("word/styles.xml", "styles"), ("word/numbering.xml", "numbering"), ("word/footer1.xml", "footer"), ("word/settings.xml", "settings")))
        + '<Override PartName="/docProps/core.xml" ContentType="application/vnd.openxmlformats-package.core-properties+xml"/></Types>',
        "_rels/.rels": HEAD + f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="{RELS}/officeDocument" Target="word/document.xml"/>'
        '<Relationship Id="rId2" Type="http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties" Target="docProps/core.xml"/></Relationships>',
        "docProps/core.xml": HEAD + '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/" '
        f'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><dc:title>{escape(clean(args.title or ""))}</dc:title><dc:creator>{escape(clean(args.author or ""))}</dc:creator>'
        f'<dcterms:created xsi:type="dcterms:W3CDTF">{now}</dcterms:created></cp:coreProperties>',
        "word/document.xml": document,
        "word/styles.xml": styles(),
        "word/numbering.xml": numbering(doc),
        "word/settings.xml": f'{HEAD}<w:settings {W}>{"<w:updateFields w:val=" + chr(34) + "true" + chr(34) + "/>" if args.toc else ""}</w:settings>',
        "word/footer1.xml": f'{HEAD}<w:ftr {W}><w:p><w:pPr><w:jc w:val="center"/></w:pPr>{field("PAGE", "1")}</w:p></w:ftr>',
        "word/_rels/document.xml.rels": HEAD + '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        + "".join(f'<Relationship Id="rId{n}" Type="{RELS}/{kind}" Target="{target}"/>' for n, kind, target in (
            (1, "styles", "styles.xml"), (2, "numbering", "numbering.xml"), (3, "footer", "footer1.xml"), (4, "settings", "settings.xml"))) + "".join(doc.rels) + "</Relationships>",
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in parts.items():
            z.writestr(name, text)
        for name, data in doc.media:
            z.writestr("word/media/" + name, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("markdown", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("report.docx"))
    parser.add_argument("--title")
    parser.add_argument("--author")
    parser.add_argument("--date", default=datetime.now().strftime("%Y-%m-%d"))
    parser.add_argument("--toc", action="store_true", help="a table of contents on a page of its own")
    args = parser.parse_args()
    if args.out.suffix.lower() != ".docx":
        parser.error("-o must end in .docx")
    if not args.markdown.is_file():
        sys.exit(f"{args.markdown} is not there: write the report as Markdown first")
    doc = Document(args.markdown.resolve().parent)
    convert(args.markdown.read_text(encoding="utf-8-sig"), doc)
    save(doc, args)
    for warning in doc.warnings:
        print("warning: " + warning)
    print(f"{args.out}: " + ", ".join(f"{n} {what}" for what, n in doc.count.items()))


if __name__ == "__main__":
    main()
