package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// phase is where one message is for one receiver.
type phase string

const (
	unknown      phase = ""
	notDue       phase = "published before the subscription"
	waiting      phase = "waiting"
	open         phase = "delivered"
	acknowledged phase = "acknowledged"
	dead         phase = "dead"
	counted      phase = "dead, and among the dead letters"
)

// queueState is one message for one receiver.
type queueState struct {
	isSubscribed bool
	phase        phase
	// id that the message has at present: a redrive gives it another one.
	id   string
	item string
}

// transitions has, for each operation on a message, the phase before and the phase after. What is not here is not possible.
var transitions = map[string]map[phase]phase{
	"deliver":     {waiting: open, open: open},
	"acknowledge": {open: acknowledged, acknowledged: acknowledged},
	"reject":      {open: dead, dead: dead, counted: counted},
	"letter":      {dead: counted, counted: counted},
	"redrive":     {dead: waiting, counted: waiting},
	"settled": {
		unknown: unknown, notDue: notDue, open: open, acknowledged: acknowledged, counted: counted,
	},
}

// queueModel: a message that was published while its receiver was subscribed waits, is delivered at least once, and is acknowledged,
// or rejected. Acknowledged, it does not come again. Rejected, it is one dead letter, until a redrive sends it again under
// another id. When all is settled, it was delivered, or is among the dead letters.
var queueModel = porcupine.Model{
	Init: func() interface{} { return queueState{} },
	Step: func(state, input, _ interface{}) (bool, interface{}) { return state.(queueState).step(input.(Record)) },
}

func (s queueState) step(record Record) (bool, queueState) {
	switch record.Do {
	case "subscribe":
		s.isSubscribed = true
		return true, s
	case "publish":
		if s.phase != unknown {
			return false, s
		}
		s.phase, s.id, s.item = notDue, record.ID, record.Item
		if s.isSubscribed {
			s.phase = waiting
		}
		return true, s
	}
	possible, is := transitions[record.Do]
	if !is {
		panic(fmt.Sprintf("a queue has no operation %q", record.Do))
	}
	after, is := possible[s.phase]
	isOther := record.Do != "settled" && record.ID != s.id || record.Do == "deliver" && record.Item != s.item
	if !is || isOther {
		return record.Ended == nil, s // without an answer, it may not have happened
	}
	s.phase = after
	if record.Do == "redrive" {
		s.id = record.New
	}
	return true, s
}

func (s queueState) String() string {
	return fmt.Sprintf("{subscribed: %v, message: %s %s, phase: %q}", s.isSubscribed, s.id, s.item, s.phase)
}
