package browser

import (
	"testing"
	"time"
)

func TestColorsAndEditsOfToolsAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, emptyStore(t), conversation("ses_a", "Tools", "", time.Now(), user("Mend it."), assistant(
		toolPart("call_1", "bash", "output-error", `{"command":"go test"}`,
			`"errorText":"\u001b[31mFAIL\u001b[0m \u001b[35mTestX\u001b[0m\n10 %\r100 %"`),
		toolPart("call_2", "edit", "output-available",
			`{"file_path":"a.go","old_string":"one\ntwo\nthree","new_string":"one\n2\nthree"}`, `"output":"done"`))))
	b := newTab(t, s)
	for _, scheme := range schemes {
		b.scheme(scheme)
		b.open("/s/ses_a")
		b.wait("document.querySelector('.call.failed .c1').innerText === 'FAIL'")
		b.text("FAIL TestX\n100 %\n")
		color := func(selector string) string {
			return eval[string](b, "getComputedStyle(document.querySelector("+quoted(selector)+")).color")
		}
		if color(".call.failed .c1") == color(".call.failed pre") {
			t.Error("red is shown in the color of text")
		}
		b.wait("document.querySelector('.call.ok .del').innerText.trim() === '- two'") // without a click
		b.wait("document.querySelector('.call.ok .add').innerText.trim() === '+ 2'")
		b.wait("document.querySelector('.call.ok summary').innerText.includes('+1 −1')")
		b.accessible(scheme)
	}
	b.click(".call.failed .links a:nth-of-type(2)") // the raw row has the text as it was
	b.text(`\u001b[31mFAIL`)
}
