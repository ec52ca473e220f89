package fencing

// Marks is how many marks g keeps in memory, old ones included.
func (g *Guard) Marks() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.of)
}
