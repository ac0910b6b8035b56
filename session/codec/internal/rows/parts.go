package rows

import "github.com/agenttrace/agenttrace/session"

// TextPart is the data of a text or reasoning part.
func TextPart(partType, text string) Object { return Of("type", partType, "text", text) }

// DataPart is the data of a data part.
func DataPart(partType string, data any) Object { return Of("type", partType, "data", data) }

// FilePart is the data of a file part.
func FilePart(mediaType, filename, url string) Object {
	o := Of("type", "file", "mediaType", mediaType)
	if filename != "" {
		o.Set("filename", filename)
	}
	o.Set("url", url)
	return o
}

// ToolPart begins the data of a tool part. A tool without a name is dynamic.
func ToolPart(name, callID, state string) Object {
	if name == "" {
		return Of("type", "dynamic-tool", "toolName", name, "toolCallId", callID, "state", state)
	}
	return Of("type", "tool-"+name, "toolCallId", callID, "state", state)
}

// ToolName returns the name of the tool that a tool part calls.
func ToolName(data Object) string {
	return session.ToolName(data.Text("type"), data.Text("toolName"))
}
