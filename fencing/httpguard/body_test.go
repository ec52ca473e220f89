package httpguard_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/httpguard"
)

func TestBodiesReachTheHandlerWhole(t *testing.T) {
	for _, length := range []int{0, 1, 99, 100, 101, 5000} {
		for _, ahead := range []int64{0, 1, 100, -1} {
			var guard fencing.Guard
			want := strings.Repeat("x", length)
			s := serve(t, &httpguard.Options{Guard: &guard, BodyAhead: ahead},
				func(_ http.ResponseWriter, r *http.Request) {
					text, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					assert.Equal(t, want, string(text))
					assert.Equal(t, int64(length), r.ContentLength)
					assert.NoError(t, r.Body.Close())
				})
			status, err := send(t, newClient(t), "PUT", s.URL+"/thing", 1, want)
			require.NoError(t, err)
			assert.Equal(t, 200, status)
		}
	}
}

func TestABodyThatBreaksOffBreaksOffInTheHandler(t *testing.T) {
	broken := errors.New("broken off")
	h := httpguard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.Equal(t, "half", string(text))
		assert.ErrorIs(t, err, broken)
		http.Error(w, "no", http.StatusBadRequest)
	}), path, &httpguard.Options{Guard: new(fencing.Guard)})
	w := put(t.Context(), h, "1", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	assert.Equal(t, 400, w.Code)
	assert.Equal(t, "no\n", w.Body.String(), "nothing is added to what the handler answered")
}

func TestOnlySoMuchOfABodyIsReadAhead(t *testing.T) {
	read := 0
	h := httpguard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.LessOrEqual(t, read, 100)
		n, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		assert.Equal(t, int64(5000), n)
	}), path, &httpguard.Options{Guard: new(fencing.Guard), BodyAhead: 100})
	w := put(t.Context(), h, "1", io.TeeReader(strings.NewReader(strings.Repeat("x", 5000)), counter{&read}))
	assert.Equal(t, 200, w.Code)
}

func TestAHandlerMayAnswerBeforeItHasReadItsBody(t *testing.T) {
	var guard fencing.Guard
	s := serve(t, &httpguard.Options{Guard: &guard, BodyAhead: -1},
		func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			assert.NoError(t, c.EnableFullDuplex())
			lines := bufio.NewReader(r.Body)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(w, line)
				assert.NoError(t, c.Flush())
			}
		})
	ours, theirs := io.Pipe()
	r := request(t, "PUT", s.URL+"/thing", 1, "")
	r.Body = ours
	go func() { _, _ = io.WriteString(theirs, "ping\n") }()
	resp, err := newClient(t).Do(r)
	require.NoError(t, err)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "ping\n", line)
	require.NoError(t, theirs.Close())
	require.NoError(t, resp.Body.Close())
}
