// Package kubernetes keeps locks in a Kubernetes cluster, for programs that run there and have no other
// lock service: each lock is a Lease object of coordination.k8s.io/v1, which package cas reads and
// replaces. It needs no other module.
//
//	client, err := locker.Open(ctx, "kubernetes://namespace", nil, kubernetes.Openers)
//
// In a Pod, that is all: it uses the credentials of the Pod's ServiceAccount. The token is read anew
// for each request, ca.crt once. Without a namespace (kubernetes://), the locks are in the Pod's own.
// The parameters of the URL are
//
//	server       the API server, as in http://127.0.0.1:8001 for kubectl proxy; default: that of the Pod
//	credentials  a directory with the files token and ca.crt; default: that of the Pod, and none with server
//	min_ttl      the shortest TTL of a lock; default: 10s, because each renewal writes to the cluster's etcd
//	timeout      how long one request may take; default: that of package cas
//
// and those that locker.Open lists. A program with other credentials, such as client-go's
// rest.HTTPClientFor, passes an [http.Client] in [Options].
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
// A client that may update Leases in a namespace can take every lock there: use a namespace for locks
// alone. Without list, locker list does not work; without watch, waiters poll. Open tries create and
// update without storing anything (dryRun=All): an admission webhook for Leases without support for
// this makes Open fail, although locks would work.
//
// # What to expect
//
// Each lock costs three requests to the API server, each renewal one: they are stored in the etcd that
// serves the whole cluster. The shortest TTL is therefore ten seconds, and this is not for hundreds of
// locks a second; see docs/costs.md. A Lease stays when its lock is free, because it counts the fencing
// tokens. If one is deleted, tokens start at 1 again, and its holder loses the lock.
//
// The objects are named locker-…, with the label app.kubernetes.io/managed-by: locker. Leases of
// client-go's leader election in the same namespace are not touched.
package kubernetes
