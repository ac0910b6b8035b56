package codec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// mostName is how long what stands of an id in a file name may be, in bytes: file systems
// take 255, and an extension and the suffixes of temporary files come to it.
const mostName = 160

// minted are ids as the SDK makes them. Their random part tells letters apart by their case,
// as that of no two ids does which are alike otherwise.
var minted = regexp.MustCompile(`^[a-z]{3}_[0-9a-f]{12}[0-9A-Za-z]{14}$`)

// FileName makes of an id, which anyone may have sent, the name of a file without its
// extension: one name, not a path, that every file system takes, of at most 240 bytes. No two
// ids have one name, also where upper and lower case are the same.
//
// Letters, digits, "-" and "_" stand; any other byte is %XX, so names of dots and control
// characters are none. Where that is too long, it is cut; there, and in an id with upper-case
// letters that the SDK did not mint, "~" and a hash of the id follow. The first byte of a
// name that Windows keeps for a device is %XX. An empty id is "%".
func FileName(id string) string {
	var b strings.Builder
	first := reservedName(id)
	for i := range len(id) {
		c := id[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
		if plain && !(first && i == 0) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
		if b.Len() > mostName {
			break
		}
	}
	name := b.String()
	if len(name) > mostName || strings.ToLower(id) != id && !minted.MatchString(id) {
		sum := sha256.Sum256([]byte(id))
		return name[:min(len(name), mostName)] + "~" + hex.EncodeToString(sum[:16])
	}
	if name == "" {
		return "%"
	}
	return name
}

// reservedName says whether Windows takes the name, in any case, for a device.
func reservedName(id string) bool {
	switch id := strings.ToLower(id); {
	case id == "con", id == "prn", id == "aux", id == "nul", id == "conin$", id == "conout$":
		return true
	case len(id) == 4 && (strings.HasPrefix(id, "com") || strings.HasPrefix(id, "lpt")):
		return id[3] >= '0' && id[3] <= '9'
	}
	return false
}
