package main

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// logState is what a receiver has of one channel.
type logState struct {
	isSubscribed bool
	// last is the id of the newest message of the log.
	last int64
	// cursor is the id up to which all was delivered that was due.
	cursor int64
	// due are the ids behind the cursor that were published while it was subscribed, oldest first.
	due []int64
}

// logModel: publishes append messages with growing ids, and a receiver gets those since its subscription in their order, none left
// out. What was delivered may be delivered again. When all is settled, nothing is due.
var logModel = porcupine.Model{
	Init: func() interface{} { return logState{} },
	Step: func(state, input, _ interface{}) (bool, interface{}) { return state.(logState).step(input.(Record)) },
	Equal: func(one, other interface{}) bool {
		a, b := one.(logState), other.(logState)
		return a.isSubscribed == b.isSubscribed && a.last == b.last && a.cursor == b.cursor && slices.Equal(a.due, b.due)
	},
}

func (s logState) step(record Record) (bool, logState) {
	id := number(record.ID)
	switch record.Do {
	case "subscribe":
		if !s.isSubscribed {
			s.isSubscribed, s.cursor = true, s.last
		}
		return true, s
	case "publish":
		if id <= s.last {
			return record.Ended == nil, s // without an answer, it may have its place elsewhere
		}
		s.last = id
		if s.isSubscribed {
			s.due = append(slices.Clone(s.due), id)
		}
		return true, s
	case "deliver":
		if len(s.due) > 0 && s.due[0] == id {
			s.due, s.cursor = s.due[1:], id
			return true, s
		}
		return s.isSubscribed && id <= s.cursor, s
	case "settled":
		return len(s.due) == 0, s
	}
	panic(fmt.Sprintf("a log has no operation %q", record.Do))
}

// String is short, however much is due.
func (s logState) String() string {
	next := "nothing"
	if len(s.due) > 0 {
		next = fmt.Sprintf("%d and %d more", s.due[0], len(s.due)-1)
	}
	return fmt.Sprintf("{subscribed: %v, newest: %d, delivered up to: %d, due: %s}", s.isSubscribed, s.last, s.cursor, next)
}
