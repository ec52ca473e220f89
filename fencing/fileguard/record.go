package fileguard

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"github.com/golockers/locker/fencing"
)

// record is what a sidecar says. Before the guarded file is touched, it says
// where the mark is about to go and how to find out whether it got there.
type record struct {
	mark  fencing.Token // 0: none
	next  fencing.Token // what the mark is about to be; 0: settled
	how   change
	inode uint64 // of the file that is about to be moved
}

// change is what is about to happen to the guarded file.
type change string

const (
	replacing change = "replacing" // the new file is moved to its place
	removing  change = "removing"  // the file is moved out of its place
)

const (
	magic = "fencing 1: the mark of the file beside it; do not edit, do not delete\n"
	// recordLen is no more than a disk writes at once, so that even a power
	// cut does not tear it.
	recordLen = 512
)

var errRecord = errors.New("not what a guard writes there")

// encode returns the whole content of a sidecar, always of the same length.
func (r record) encode() []byte {
	text := fmt.Sprintf("%smark %d\n", magic, r.mark)
	if r.next != 0 {
		text += fmt.Sprintf("next %d by %s inode %d\n", r.next, r.how, r.inode)
	}
	text += fmt.Sprintf("sum %08x", crc32.ChecksumIEEE([]byte(text)))
	return []byte(text + strings.Repeat(" ", recordLen-1-len(text)) + "\n")
}

// decode reads what encode wrote. Nothing at all is a sidecar that was just
// made: nothing was guarded by it yet, as the first note comes before the first
// write.
func decode(content []byte) (record, error) {
	var r record
	if len(content) == 0 {
		return r, nil
	}
	_, _ = fmt.Sscanf(string(content), magic+"mark %d\nnext %d by %s inode %d\n", &r.mark, &r.next, &r.how, &r.inode)
	known := r.next == 0 || r.how == replacing || r.how == removing
	// Whatever was not understood, or was damaged, does not come out the same.
	if !known || !bytes.Equal(r.encode(), content) {
		return record{}, errRecord
	}
	return r, nil
}

// readRecord returns what the sidecar f says.
func readRecord(f *os.File) (record, error) {
	content := make([]byte, recordLen+1)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return record{}, err
	}
	r, err := decode(content[:n])
	if err != nil {
		return r, fmt.Errorf("%s has something in it that is %w: find out what wrote it; the mark is lost,"+
			" so delete it only when no holder of an old token can still be there", f.Name(), err)
	}
	return r, nil
}

// note writes r into the sidecar f. It lasts by noteForGood only.
func (r record) note(f *os.File) error {
	_, err := f.WriteAt(r.encode(), 0)
	return err
}
