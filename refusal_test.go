package locker_test

import "testing"

func TestARefusal(t *testing.T) {
	play(t, map[string]string{
		"may leave something, and a note": `acquire: left; a tries: held; 1s; count undo 1 leave 1 Pending 0`,
		"which is undone again and again until it is gone": `
			acquire: left; undo: down; a tries: held; 3s; count Pending 1 leave 1; undo: ok; 10s
			count Pending 0 TakenBack 1`,
		"also if it comes with the end of the context": `
			acquire: hangs left; a locks until 1s: held deadline; 3s; count undo 1 leave 1 Pending 0`,
		"or when the caller has left": `
			service deaf; acquire: 2s left; a locks until 1s: deadline unavailable in 1s-1.1s; 3s
			count undo 1 leave 1 Pending 0`,
		"or a moment before the context ends": `
			acquire: 999ms early then hangs; a locks until 1s: held deadline; 3s; count undo 1 leave 1 Pending 0`,
		"or the client is closed meanwhile, which asks once more": `
			acquire: left; undo: down then ok; a tries: held; client closes: ok; count undo 2 LeftBehind 0`,
		"beside an outage means nothing (R17)": `acquire: vain; a tries: unavailable; 1s; count leave 0`,
		// It would be a refusal of which nothing is known.
		"that is an error is a fault of the backend": `
			acquire: mistaken; a tries: refused "instead of a Refusal"; 1s; job is free`,
		"of a lock that is granted as well is another, and nobody holds it": `
			acquire: both then ok; a tries: refused "a fault of the backend"; 1s; job is free; count TakenBack 1`,
		"of the next in line, which then asks itself": `
			service passes; passed: left; a locks; b locks: waits; a unlocks; b: ok in 0s-1s; 1m; b holds
			count pass 1 undo 1 acquire 2`,
		"that grants it the lock as well: neither is known": `
			service passes; passed: both; a locks; b locks: waits; a unlocks: refused; b: ok in 0s-1s; 1m; b holds`,
	})
}
