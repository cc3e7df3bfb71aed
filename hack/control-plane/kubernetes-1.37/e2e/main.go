// Command e2e runs Kubernetes' own end-to-end specs of scheduling, and no others, against the cluster of -kubeconfig.
//
// It is built by `go build`, not `go test -c`: Ginkgo asks of a test only that it can fail, and one kind of build is
// enough for every binary of this folder. Its flags are those of Kubernetes' e2e.test (-ginkgo.focus, -provider, …).
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	_ "k8s.io/component-base/logs/testinit" // the flags of the logs
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init" // nodes must be ready after each spec
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

// suite is what Ginkgo calls when a spec has failed.
type suite struct{ failed bool }

func (s *suite) Fail() { s.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unexpected arguments: %q\n", flag.Args())
		os.Exit(2)
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	framework.TestContext.IPFamily = "ipv4" // the whole suite asks the Service `kubernetes`; this control plane has IPv4

	gomega.RegisterFailHandler(framework.Fail)
	suiteConfig, reporterConfig := framework.CreateGinkgoConfig()
	var result suite
	ginkgo.RunSpecs(&result, "Kubernetes e2e specs of scheduling", suiteConfig, reporterConfig)
	if result.failed {
		os.Exit(1)
	}
}
