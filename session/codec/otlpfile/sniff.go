package otlpfile

import (
	"bytes"
	"strings"
)

const nameAFile = "; name a file that an OTLP exporter or the collector's file exporter wrote"

// kindOf states what a file is that is not OTLP, and what to do.
func kindOf(head []byte) string {
	for _, k := range []struct{ magic, what string }{
		{"SQLite format 3\x00", "it is an SQLite database"},
		{"PK\x03\x04", "it is a zip archive; unpack it first"},
		{"BZh", "it is compressed with bzip2; unpack it first"},
		{"\xfd7zXZ\x00", "it is compressed with xz; unpack it first"},
		{"\x04\x22\x4d\x18", "it is compressed with lz4; unpack it first"},
		{"\xff\x06\x00\x00sNaPpY", "it is compressed with snappy; unpack it first"},
		{"\xff\xfe", "it is text in UTF-16; convert it to UTF-8 first"},
		{"\xfe\xff", "it is text in UTF-16; convert it to UTF-8 first"},
		{"PAR1", "it is a Parquet file"},
	} {
		if bytes.HasPrefix(head, []byte(k.magic)) {
			return k.what
		}
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	for _, word := range []string{"null", "true", "false", `"`} {
		if bytes.HasPrefix(text, []byte(word)) {
			return "it is JSON that holds " + strings.Replace(word, `"`, "a string", 1) + " and no object" + nameAFile
		}
	}
	for _, c := range head {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return "it is neither JSON nor protobuf" + nameAFile
		}
	}
	return "it is text that does not begin as JSON does" + nameAFile
}
