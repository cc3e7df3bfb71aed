// Answers of kube-scheduler's own module about devices: one case a line in, one answer a line out, both JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// question asks whether a selector matches a device or, if it has a node, for devices of that node.
type question struct {
	Selector string             `json:"selector"`
	Driver   string             `json:"driver"`
	Device   *resourcev1.Device `json:"device"`

	Node      *corev1.Node                `json:"node"`
	Claims    []*resourcev1.ResourceClaim `json:"claims"`
	Classes   classes                     `json:"classes"`
	Slices    []*resourcev1.ResourceSlice `json:"slices"`
	Allocated []*resourcev1.ResourceClaim `json:"allocated"`
}

type answer struct {
	Invalid string                        `json:"invalid,omitempty"` // of a selector that does not compile
	Error   string                        `json:"error,omitempty"`
	Matches bool                          `json:"matches"`
	Results []resourcev1.AllocationResult `json:"results"`
}

type classes []*resourcev1.DeviceClass

func (all classes) List() ([]*resourcev1.DeviceClass, error) { return all, nil }

func (all classes) Get(name string) (*resourcev1.DeviceClass, error) {
	for _, class := range all {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("device class %s does not exist", name)
}

// The gates that are on by default in 1.37, without binding conditions, for which gangsched does not wait.
var features = structured.Features{AdminAccess: true, ConsumableCapacity: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		given := selected(asked)
		if asked.Node != nil {
			given = allocated(asked)
		}
		if err := answers.Encode(given); err != nil {
			panic(err)
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

var consumable = cel.Features{EnableConsumableCapacity: true}
var compiler = cel.GetCompiler(consumable)
var cache = cel.NewCache(1000, consumable)

func selected(asked question) (given answer) {
	if asked.Device == nil {
		return
	}
	compiled := compiler.CompileCELExpression(asked.Selector, cel.Options{DisableCostEstimation: true})
	if compiled.Error != nil {
		return answer{Invalid: compiled.Error.Error()}
	}
	device := cel.Device{Driver: asked.Driver, AllowMultipleAllocations: asked.Device.AllowMultipleAllocations,
		Attributes: asked.Device.Attributes, Capacity: asked.Device.Capacity}
	matches, _, err := compiled.DeviceMatches(context.Background(), device)
	given.Matches = matches
	if err != nil {
		given.Error = err.Error()
	}
	return
}

func allocated(asked question) (given answer) {
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features, taken(asked.Allocated), asked.Classes, asked.Slices, cache)
	if err != nil {
		panic(err)
	}
	given.Results, err = allocator.Allocate(ctx, asked.Node, asked.Claims)
	if err != nil {
		given.Error = err.Error()
	}
	return
}

// taken is what claims hold, as kube-scheduler's DRA plugin gathers it.
func taken(claims []*resourcev1.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}
