package dataset

import (
	"bytes"
	"fmt"
)

// EncodeManifest returns what WriteParquet would write, to send it to another rank.
func EncodeManifest(m *Manifest) ([]byte, error) {
	var out bytes.Buffer
	if err := m.encode(&out); err != nil {
		return nil, fmt.Errorf("staging: encode the manifest of %s: %w", m.root, err)
	}
	return out.Bytes(), nil
}

// DecodeManifest decodes what EncodeManifest returned. Errors: as for ReadParquet.
func DecodeManifest(data []byte) (*Manifest, error) {
	m, err := parseParquet(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("staging: the manifest of another rank: %w", err)
	}
	return m, nil
}
