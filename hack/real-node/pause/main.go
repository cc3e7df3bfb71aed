// The first process of a pod: it holds the pod's namespaces, reaps orphans and ends when it is told to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	heard := make(chan os.Signal, 16)
	signal.Notify(heard, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for each := range heard {
		if each != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
