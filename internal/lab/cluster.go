package lab

import (
	"fmt"
	"strconv"
)

// Cluster is a Redis Cluster of three masters without replicas, which share the hash slots evenly.
type Cluster struct {
	// Nodes are the masters, in the order of their slots. Not to be changed.
	Nodes []*Redis
}

const (
	clusterNodes = 3
	clusterSlots = 16384
)

// StartCluster starts a cluster, and returns once every node finds it complete. opts hold for every
// node.
func StartCluster(t TB, opts ...Option) *Cluster {
	t.Helper()
	opts = append([]Option{
		WithConfig("cluster-enabled", "yes"),
		// A node that cannot be reached for this long makes the others refuse to serve.
		WithConfig("cluster-node-timeout", "15000"),
		WithConfig("cluster-announce-ip", "127.0.0.1"),
	}, opts...)
	c := &Cluster{}
	for i := range clusterNodes {
		n := launchRedis(t, fmt.Sprintf("cluster-%d", i+1), opts)
		c.Nodes = append(c.Nodes, n)
		slots := []any{"CLUSTER", "ADDSLOTS"} // a range would need Redis 7
		for slot := i * clusterSlots / clusterNodes; slot < (i+1)*clusterSlots/clusterNodes; slot++ {
			slots = append(slots, slot)
		}
		n.MustDo(t, slots...)
		// Epochs of their own spare the nodes a quarrel about equal ones, which takes a while.
		n.MustDo(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			c.Nodes[0].MustDo(t, "CLUSTER", "MEET", "127.0.0.1", n.Port(), n.Port()+busOffset)
		}
	}
	await(t, func() (err error) {
		for _, n := range c.Nodes {
			if err == nil {
				err = n.says(map[string]string{"cluster_state": "ok", "cluster_slots_ok": strconv.Itoa(clusterSlots),
					"cluster_known_nodes": strconv.Itoa(clusterNodes)}, "CLUSTER", "INFO")
			}
		}
		return err
	}, processes(c.Nodes)...)
	return c
}

// Addrs returns the host:port of each node.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// NodeOf returns the node that a key lives on, while no slot was moved.
func (c *Cluster) NodeOf(t TB, key string) *Redis {
	t.Helper()
	for _, n := range c.Nodes {
		if n.Running() {
			slot, _ := n.MustDo(t, "CLUSTER", "KEYSLOT", key).(int64)
			return c.Nodes[(int(slot)*clusterNodes+clusterNodes-1)/clusterSlots]
		}
	}
	t.Fatal("lab: no node of the cluster is running")
	return nil
}

// Move moves a slot with its keys from one node to another, as redis-cli does.
func (c *Cluster) Move(t TB, slot int64, from, to *Redis) {
	t.Helper()
	fromID, toID := from.MustDo(t, "CLUSTER", "MYID"), to.MustDo(t, "CLUSTER", "MYID")
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.MustDo(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	for {
		keys := from.MustDo(t, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
		if len(keys) == 0 {
			break
		}
		from.MustDo(t, append([]any{"MIGRATE", "127.0.0.1", to.Port(), "", 0, 5000, "KEYS"}, keys...)...)
	}
	// The one that gets it is told first, so that nobody is sent to and fro.
	for _, n := range append([]*Redis{to, from}, c.Nodes...) {
		n.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}
