package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
)

// Kubernetes is the API server of a Kubernetes cluster that has nothing else, on 127.0.0.1, with an etcd of its own.
// It asks who may do what (RBAC). Its methods may be called from any goroutine, except those that take a TB.
type Kubernetes struct {
	*Process
	Certs *Certs // its certificate is theirs
	http  *http.Client
}

// AdminToken is a bearer token with all rights.
const AdminToken = "lab"

// StartKubernetes starts an API server and its etcd, and returns once it is ready. It is killed when the test ends.
// Without them the test is skipped; see [Need].
func StartKubernetes(t TB) *Kubernetes {
	t.Helper()
	binary := Need(t, ToolKubernetes)
	data := StartEtcd(t, 1)
	k := &Kubernetes{Certs: NewCerts(t)}
	k.http = &http.Client{Timeout: probe, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: k.Certs.ClientConfig(),
	}}
	launch(t, func() []*Process {
		k.Process = newProcess(t, "kube-apiserver", config{}, 1)
		k.command = func() (*exec.Cmd, error) { return k.newCommand(binary, data.Nodes[0].URL()) }
		k.answers = func() error { return k.Ask(http.MethodGet, "/readyz", nil, nil) }
		return []*Process{k.Process}
	})
	return k
}

func (k *Kubernetes) newCommand(binary, etcd string) (*exec.Cmd, error) {
	tokens := filepath.Join(k.dir, "tokens.csv")
	err := os.WriteFile(tokens, []byte(AdminToken+`,lab,lab,"system:masters"`+"\n"), 0o600)
	return k.program(binary,
		"--etcd-servers="+etcd,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", k.Port()),
		"--tls-cert-file="+k.Certs.CertFile, "--tls-private-key-file="+k.Certs.KeyFile,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+k.Certs.CertFile, "--service-account-signing-key-file="+k.Certs.KeyFile,
		"--authorization-mode=RBAC", "--token-auth-file="+tokens,
		"--shutdown-delay-duration=0s"), err
}

// URL is its address.
func (k *Kubernetes) URL() string { return "https://" + k.Addr() }

// Ask makes a request with all rights; body and into are JSON, or nil. What the server refuses is an error.
func (k *Kubernetes) Ask(method, path string, body, into any) error {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, k.URL()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+AdminToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := k.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("lab: the API server answered %s with %s %q", path, resp.Status, text)
	} else if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// Account makes a namespace and in it a ServiceAccount that may do with Leases what verbs say and nothing else, and
// returns a directory with its credentials, as a Pod has them.
func (k *Kubernetes) Account(t TB, namespace, account string, verbs ...string) (dir string) {
	t.Helper()
	type object = map[string]any
	named := func(name string) object { return object{"name": name} }
	within, roles := "/api/v1/namespaces/"+namespace, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace
	_ = k.Ask(http.MethodPost, "/api/v1/namespaces", object{"metadata": named(namespace)}, nil) // it may be there
	err := errors.Join(
		k.Ask(http.MethodPost, within+"/serviceaccounts", object{"metadata": named(account)}, nil),
		k.Ask(http.MethodPost, roles+"/roles", object{"metadata": named(account), "rules": []object{{
			"apiGroups": []string{"coordination.k8s.io"}, "resources": []string{"leases"}, "verbs": verbs,
		}}}, nil),
		k.Ask(http.MethodPost, roles+"/rolebindings", object{"metadata": named(account),
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
			"subjects": []object{{"kind": "ServiceAccount", "name": account, "namespace": namespace}}}, nil))
	var made struct{ Status struct{ Token string } }
	if err == nil {
		err = k.Ask(http.MethodPost, within+"/serviceaccounts/"+account+"/token", object{}, &made)
	}
	ca, failed := os.ReadFile(k.Certs.CAFile)
	dir = newDir(t, "")
	for name, text := range map[string]string{"token": made.Status.Token, "ca.crt": string(ca), "namespace": namespace} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if err := errors.Join(err, failed); err != nil {
		t.Fatalf("lab: make a ServiceAccount: %v", err)
	}
	// Rights count from a moment later.
	for _, verb := range verbs {
		await(t, func() error {
			var may struct{ Status struct{ Allowed bool } }
			err := k.Ask(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", object{"spec": object{
				"user": "system:serviceaccount:" + namespace + ":" + account, "resourceAttributes": object{
					"namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases"},
			}}, &may)
			if err == nil && !may.Status.Allowed {
				err = errors.New("lab: it may not " + verb + " yet")
			}
			return err
		}, k.Process)
	}
	return dir
}
