// Package kubernetes keeps locks in a Kubernetes cluster, for programs that run in one and have no other lock
// service: each lock is a Lease object of coordination.k8s.io/v1, which package cas reads and replaces. It needs no
// module but this one.
//
//	client, err := locker.Open(ctx, "kubernetes://namespace", nil, kubernetes.Openers)
//
// In a Pod, that is all: it asks the API server with the credentials of the Pod's ServiceAccount. Its token is read anew
// for each request, ca.crt once. Without a namespace (kubernetes://), the locks are in the Pod's own. The parameters of
// the URL are
//
//	server       the API server, as in http://127.0.0.1:8001 for kubectl proxy; default: that of the Pod
//	credentials  a directory with the files token and ca.crt; default: that of the Pod, and none with server
//	min_ttl      the shortest TTL of a lock; default: 10s, since each renewal is a write in the cluster's etcd
//	timeout      how long one request may take; default: that of package cas
//
// and those that locker.Open lists. A program with other credentials, such as client-go's rest.HTTPClientFor, hands in
// an [http.Client] by [Options].
//
// # Rights
//
// The ServiceAccount needs a Role with this rule, and a RoleBinding to it:
//
//	rules:
//	- apiGroups: [coordination.k8s.io]
//	  resources: [leases]
//	  verbs: [get, create, update, list, watch]
//
// Whoever may update Leases in a namespace can take every lock there: a namespace for locks alone keeps programs
// apart. Without list, locker list does not work; without watch, waiters poll. Opening tries create and update without
// storing anything (dryRun=All): an admission webhook for Leases that does not support this has them refused, and so
// Open, though locks would work.
//
// # What to expect
//
// Each lock is three requests to the API server, each renewal one: they are stored in the cluster's etcd, which serves
// everybody. The shortest TTL is therefore ten seconds, and this is not the place for hundreds of locks a second; see
// docs/costs.md. A Lease stays when its lock is free, since the next fencing token is counted in it. Where one is
// deleted, tokens begin at 1 again, and its holder has lost the lock.
//
// The objects are named locker-…, with the label app.kubernetes.io/managed-by: locker. The leader elections of
// client-go, whose Leases may be in the same namespace, are not touched.
package kubernetes
