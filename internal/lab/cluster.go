package lab

import (
	"fmt"
	"strconv"
	"time"
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
func StartCluster(t TB, opts ...RedisOption) *Cluster {
	t.Helper()
	node := append(opts[:len(opts):len(opts)],
		func(c *redisConfig) { c.cluster = true },
		WithConfig("cluster-enabled", "yes"),
		WithConfig("cluster-config-file", "nodes.conf"),
		// A node that cannot be reached for this long makes the others refuse to serve.
		WithConfig("cluster-node-timeout", "2000"),
		WithConfig("cluster-announce-ip", "127.0.0.1"))
	c := &Cluster{}
	for i := range clusterNodes {
		c.Nodes = append(c.Nodes, launchRedis(t, fmt.Sprintf("cluster-%d", i+1), node))
	}
	first := c.Nodes[0]
	for i, n := range c.Nodes {
		from, to := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes
		slots := []any{"CLUSTER", "ADDSLOTS"} // a range would need Redis 7
		for slot := from; slot < to; slot++ {
			slots = append(slots, slot)
		}
		n.MustDo(t, slots...)
		// Epochs of their own spare the nodes a quarrel about equal ones, which takes a while.
		n.MustDo(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if n != first {
			first.MustDo(t, "CLUSTER", "MEET", "127.0.0.1", n.Port(), n.Port()+busOffset)
		}
	}
	c.WaitUntilComplete(t)
	return c
}

// WaitUntilComplete returns once every node finds the cluster complete: after a restart, for one.
func (c *Cluster) WaitUntilComplete(t TB) {
	t.Helper()
	for _, n := range c.Nodes {
		if err := n.ready(func() error { return complete(n) }); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// Addrs returns the host:port of each node.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// NodeOf returns the node that a key lives on.
func (c *Cluster) NodeOf(t TB, key string) *Redis {
	t.Helper()
	slot, _ := c.running(t).MustDo(t, "CLUSTER", "KEYSLOT", key).(int64)
	for i, n := range c.Nodes {
		if int(slot) < (i+1)*clusterSlots/clusterNodes {
			return n
		}
	}
	t.Fatalf("lab: slot %d of %q is out of range", slot, key)
	return nil
}

func (c *Cluster) running(t TB) *Redis {
	t.Helper()
	for _, n := range c.Nodes {
		if n.Running() {
			return n
		}
	}
	t.Fatal("lab: no node of the cluster is running")
	return nil
}

func complete(n *Redis) error {
	reply, err := n.do(time.Second, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	info := infoFields(reply)
	for field, want := range map[string]string{
		"cluster_state":       "ok",
		"cluster_slots_ok":    strconv.Itoa(clusterSlots),
		"cluster_known_nodes": strconv.Itoa(clusterNodes),
	} {
		if info[field] != want {
			return fmt.Errorf("lab: its %s is %q instead of %q", field, info[field], want)
		}
	}
	return nil
}
