package skill

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// ReadZip judges an archive of size bytes. Nothing that its headers claim is believed: sizes are counted as bytes come, every name is
// checked, and an archive whose parts contradict each other is refused with the name of the entry. The error is that of r.
func ReadZip(src io.ReaderAt, size int64, limits Limits) (*Package, *Report, error) {
	r, err := unzip(src, size, limits)
	if err != nil {
		return nil, nil, err
	}
	if !r.report.Loads() && len(r.files) == 0 {
		return nil, &r.report, nil // without files everything else would repeat it
	}
	p, report := r.finish("")
	return p, report, nil
}

// Unzip reads an archive as ReadZip does, and returns its files without asking whether they are a skill. They are whole only if the report
// Loads.
func Unzip(src io.ReaderAt, size int64, limits Limits) ([]File, *Report, error) {
	r, err := unzip(src, size, limits)
	if err != nil {
		return nil, nil, err
	}
	return r.files, &r.report, nil
}

func unzip(src io.ReaderAt, size int64, limits Limits) (*reader, error) {
	limits.setDefaults()
	r := &reader{limits: limits}
	z := &zipReader{reader: r, src: &source{r: src}, size: size}
	z.read()
	return r, z.src.err
}

// source remembers the reader's own error, so that it is told from a fault of the archive.
type source struct {
	r   io.ReaderAt
	err error
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("an offset in front of the archive") // the archive's fault
	}
	n, err := s.r.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

type zipReader struct {
	*reader
	src  *source
	size int64
	// offsets are where the entries' local headers begin, in the order of the directory.
	offsets []int64
}

func (z *zipReader) refuse(name, code, message, mend string) {
	z.report.add(Finding{Code: code, Path: name, By: everyone, Message: message, Mend: mend})
}

const again = "make the archive again with another program, such as `lathe skill pack`"

func (z *zipReader) read() {
	if z.size > z.limits.ZipBytes {
		z.refuse("", "zip-too-large", "the archive has "+number(z.size)+" bytes; at most "+number(z.limits.ZipBytes)+" are taken", "leave out what the skill does not need")
		return
	}
	if !z.directory() {
		return
	}
	archive, err := zip.NewReader(z.src, z.size)
	if errors.Is(err, zip.ErrInsecurePath) { // each such entry is refused below, with its name
		err = nil
	}
	if err != nil || archive == nil {
		z.refuse("", "zip", "the archive cannot be read", again)
		return
	}
	files := make([]*zip.File, 0, len(archive.File))
	for _, f := range archive.File {
		if z.entry(f) {
			files = append(files, f)
		}
	}
	if z.overlaps(archive.File) {
		return
	}
	for _, f := range files {
		if z.full {
			return
		}
		z.content(f)
	}
}

// directory looks at the archive's directory before anything is allocated for its entries.
func (z *zipReader) directory() bool {
	const endLen, headerLen = 22, 46
	tail := make([]byte, min(z.size, endLen+1<<16))
	if _, err := z.src.ReadAt(tail, z.size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	at := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if at < 0 || len(tail)-at < endLen {
		z.refuse("", "zip", "is no zip archive", "send a zip archive, or the files themselves")
		return false
	}
	le := binary.LittleEndian
	end := tail[at:]
	length, offset := le.Uint32(end[12:]), le.Uint32(end[16:])
	if le.Uint16(end[10:]) == 0xffff || length == 0xffffffff || offset == 0xffffffff || bytes.Contains(tail[:at], []byte("PK\x06\x07")) {
		z.refuse("", "zip64", "the archive is in the zip64 form, which is for more than 4 GiB or 65,535 entries", again)
		return false
	}
	if int64(length) > int64(z.limits.Files+z.limits.Files/2+16)*(headerLen+maxPath) || int64(length) > z.size {
		z.refuse("", "too-many-files", "the archive has a directory of "+number(int64(length))+" bytes", "leave out what the skill does not need")
		return false
	}
	headers := make([]byte, length)
	start := z.size - int64(len(tail)) + int64(at) - int64(length) // the real place: programs put things in front of archives
	if start < 0 {
		z.refuse("", "zip", "the archive cannot be read", again)
		return false
	}
	if _, err := z.src.ReadAt(headers, start); err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	// Folders may be entries too, so half as many again as files are taken.
	for n, most := 0, z.limits.Files+z.limits.Files/2; len(headers) >= headerLen && string(headers[:4]) == "PK\x01\x02"; n++ {
		skip := headerLen + int(le.Uint16(headers[28:])) + int(le.Uint16(headers[30:])) + int(le.Uint16(headers[32:]))
		name := headers[headerLen:min(headerLen+int(le.Uint16(headers[28:])), len(headers))]
		if n >= most {
			z.refuse(shown(string(name)), "too-many-files", "is entry "+number(n+1)+" of the archive; "+number(most)+" are taken", "leave out what the skill does not need")
			return false
		}
		z.offsets = append(z.offsets, start-int64(offset)+int64(le.Uint32(headers[42:])))
		headers = headers[min(skip, len(headers)):]
	}
	return true
}

// entry judges the header of an entry, and says whether it is a file to read.
func (z *zipReader) entry(f *zip.File) bool {
	name := shown(f.Name)
	mode := f.Mode()
	switch {
	case f.Flags&0x1 != 0 || f.Flags&0x40 != 0 || f.Flags&0x2000 != 0:
		z.refuse(name, "encrypted", "is encrypted", "make the archive without a password")
	case f.UncompressedSize64 > 0xfffffffe || f.CompressedSize64 > 0xfffffffe || hasExtra(f.Extra, 0x0001):
		z.refuse(name, "zip64", "is in the zip64 form, which is for files of more than 4 GiB", again)
	case f.Method != zip.Store && f.Method != zip.Deflate:
		z.refuse(name, "method", fmt.Sprintf("is compressed by method %d; only stored and deflated entries are read", f.Method), again)
	case mode&fs.ModeSymlink != 0:
		z.refuse(name, "link", "is a link", "put the file itself in its place")
	case !mode.IsDir() && !mode.IsRegular():
		z.refuse(name, "special", "is no plain file", "leave it out")
	case mode.IsDir() || strings.HasSuffix(f.Name, "/"):
		z.folder(f)
	case !junk(f.Name) && f.UncompressedSize64 > uint64(z.limits.TotalBytes):
		z.refuse(name, "too-large", fmt.Sprintf("is said to have %d bytes; a package may have %d", f.UncompressedSize64, z.limits.TotalBytes), "leave out what the skill does not need")
	default:
		return true
	}
	return false
}

// folder judges the entry of a folder, which is not needed otherwise: folders are made for the files in them.
func (z *zipReader) folder(f *zip.File) {
	if problem := checkPath(strings.TrimSuffix(f.Name, "/")); problem != "" && !junk(f.Name) {
		z.refuse(shown(f.Name), "path", problem, again)
	} else if f.UncompressedSize64 > 0 {
		z.refuse(shown(f.Name), "special", "is a folder with bytes of its own", again)
	}
}

func hasExtra(extra []byte, id uint16) bool {
	for len(extra) >= 4 {
		n := int(binary.LittleEndian.Uint16(extra[2:]))
		if binary.LittleEndian.Uint16(extra) == id {
			return true
		}
		extra = extra[min(4+n, len(extra)):]
	}
	return false
}

// overlaps refuses entries that share bytes, with which a small archive unpacks to a huge one, and local headers that say another thing
// than the directory: other programs would read another package than this one.
func (z *zipReader) overlaps(files []*zip.File) bool {
	type span struct {
		from, to int64
		name     string
	}
	if len(files) != len(z.offsets) {
		z.refuse("", "contradiction", "the archive's directory can be read in two ways", again)
		return true
	}
	spans := make([]span, 0, len(files))
	for i, f := range files {
		data, what := z.local(f, z.offsets[i])
		if what != "" {
			z.refuse(shown(f.Name), "contradiction", "has another "+what+" in its own header than in the archive's directory", again)
			return true
		}
		spans = append(spans, span{z.offsets[i], data + int64(f.CompressedSize64), f.Name}) //nolint:gosec // entry has refused what is larger
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to {
			z.refuse(shown(spans[i].name), "overlap", "shares its bytes with "+shown(spans[i-1].name), again)
			return true
		}
	}
	return false
}

// local compares the local header at from with an entry of the directory. It returns where the data begins, and what differs.
func (z *zipReader) local(f *zip.File, from int64) (data int64, differs string) {
	const headerLen = 30
	head := make([]byte, headerLen+len(f.Name))
	if _, err := z.src.ReadAt(head, from); err != nil || string(head[:4]) != "PK\x03\x04" {
		return 0, "place"
	}
	le := binary.LittleEndian
	data = from + headerLen + int64(le.Uint16(head[26:])) + int64(le.Uint16(head[28:]))
	if at, err := f.DataOffset(); err != nil || at != data {
		return 0, "place"
	}
	switch {
	case int(le.Uint16(head[26:])) != len(f.Name) || string(head[headerLen:]) != f.Name:
		return 0, "name"
	case le.Uint16(head[8:]) != f.Method:
		return 0, "compression"
	case le.Uint16(head[6:])&0x9 != f.Flags&0x9:
		return 0, "flag"
	case f.Flags&0x8 != 0:
		return data, "" // sizes come behind the data; archive/zip compares them
	case uint64(le.Uint32(head[18:])) != f.CompressedSize64 || uint64(le.Uint32(head[22:])) != f.UncompressedSize64:
		return 0, "size"
	case le.Uint32(head[14:]) != f.CRC32:
		return 0, "checksum"
	}
	return data, ""
}

// content reads a file's bytes, counted as they come.
func (z *zipReader) content(f *zip.File) {
	name := f.Name
	if !z.admit(name, int64(f.UncompressedSize64)) { //nolint:gosec // entry has refused what is larger than a package
		return
	}
	body, err := f.Open()
	if err != nil {
		z.refuse(shown(name), "zip", "cannot be read", again)
		return
	}
	defer body.Close()
	var data bytes.Buffer
	_, err = data.ReadFrom(io.LimitReader(body, int64(f.UncompressedSize64)+1)) //nolint:gosec // as above
	switch {
	case uint64(data.Len()) > f.UncompressedSize64:
		z.refuse(shown(name), "bomb", "unpacks to more bytes than its header says", again)
		z.full = true
		return
	case err != nil || crc32.ChecksumIEEE(data.Bytes()) != f.CRC32: // archive/zip takes a checksum of 0 for none
		z.refuse(shown(name), "checksum", "is damaged: its bytes or checksum do not match its header", again)
		return
	}
	exec := f.Mode()&0o111 != 0
	if f.CreatorVersion>>8 != 3 && f.CreatorVersion>>8 != 19 { // neither Unix nor macOS: there are no modes
		exec = Runnable(data.Bytes())
	}
	z.files = append(z.files, File{Path: name, Data: data.Bytes(), Exec: exec})
}

// WriteZip writes the package below one folder with the skill's name. The same files give the same bytes: sorted, without times, with
// modes 0755 and 0644, and with all sizes in front of the data.
func (p *Package) WriteZip(w io.Writer) error {
	archive := zip.NewWriter(w)
	var packed bytes.Buffer
	deflate, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil {
		return err
	}
	for _, f := range p.Files {
		packed.Reset()
		deflate.Reset(&packed)
		if _, err := deflate.Write(f.Data); err != nil {
			return err
		}
		if err := deflate.Close(); err != nil {
			return err
		}
		h := &zip.FileHeader{Name: p.Meta.Name + "/" + f.Path, Method: zip.Deflate, CRC32: crc32.ChecksumIEEE(f.Data), UncompressedSize64: uint64(len(f.Data))}
		data := packed.Bytes()
		if len(data) >= len(f.Data) {
			h.Method, data = zip.Store, f.Data
		}
		h.CompressedSize64 = uint64(len(data))
		h.SetMode(0o644)
		if f.Exec {
			h.SetMode(0o755)
		}
		h.ModifiedDate = 1<<5 | 1 //nolint:staticcheck // 1 January 1980, the first that zip knows; CreateRaw does not look at Modified
		raw, err := archive.CreateRaw(h)
		if err != nil {
			return err
		}
		if _, err := raw.Write(data); err != nil {
			return err
		}
	}
	return archive.Close()
}
