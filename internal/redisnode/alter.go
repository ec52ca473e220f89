package redisnode

// Alter changes the texts of the scripts of n. It is for tests that look whether mistakes in them are found.
func (n *Node) Alter(change func(text string) string) {
	for _, s := range []**Script{&n.release, &n.undo, &n.retain} {
		altered := **s
		altered.text = change(altered.text)
		*s = altered.named()
	}
}
