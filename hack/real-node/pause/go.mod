module gangsched.dev/hack/real-node/pause

go 1.24
