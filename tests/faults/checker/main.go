// Checker judges histories of runs with faults by Porcupine: each is a log for each receiver and channel, and a queue for
// each receiver and message. docs/explanation/faults.md has the models.
//
// Usage: checker FILE...   The status is 1 if a history is refused, and 2 if it cannot be read.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const limit = time.Minute

func main() {
	status := 0
	for _, name := range os.Args[1:] {
		file, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		records, err := read(file)
		file.Close()
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(2)
		}
		text, refusals := judge(records)
		fmt.Println(text)
		for _, each := range refusals {
			fmt.Println(each)
			status = 1
		}
	}
	os.Exit(status)
}

// judge returns what it looked at, and why it refuses the history: one text for each part.
func judge(records []Record) (string, []string) {
	var refusals []string
	if !slices.ContainsFunc(records, func(each Record) bool { return each.Do == "settled" }) {
		refusals = append(refusals, "the history has no operation settled at its end")
	}
	parts := newHistory(records).partitions()
	slices.SortFunc(parts, func(a, b partition) int { return strings.Compare(a.name, b.name) })
	for _, each := range parts {
		result, info := porcupine.CheckOperationsVerbose(each.model, each.operations, limit)
		if result != porcupine.Ok {
			refusals = append(refusals, fmt.Sprintf("%s: %s; %s", each.name, result, stuck(each, info)))
		}
	}
	return fmt.Sprintf("%d operations, in %d logs and queues: %d refused", len(records), len(parts), len(refusals)), refusals
}

// stuck tells which operation cannot follow those before it.
func stuck(part partition, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, found := range info.PartialLinearizationsOperations()[0] {
		if len(found) > len(longest) {
			longest = found
		}
	}
	state, done := part.model.Init(), map[Record]bool{}
	for _, each := range longest {
		_, state = part.model.Step(state, each.Input, nil)
		done[each.Input.(Record)] = true
	}
	for _, each := range part.operations {
		if record := each.Input.(Record); !done[record] {
			return fmt.Sprintf("%s %s %s cannot happen in the state %v", record.Do, record.ID, record.Item, state)
		}
	}
	return "no order of its operations is possible"
}
