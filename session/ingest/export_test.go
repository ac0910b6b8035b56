package ingest

// SetWindowSize has turns cut after so many facts.
func (i *Ingester) SetWindowSize(n int) { i.windowSize = n }
