package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// Record is a line of a history: one operation that a client, an operator or a test saw. Times are in nanoseconds of one clock.
type Record struct {
	// Do is subscribe, publish, deliver, acknowledge, reject, redrive, letter, fault or settled.
	Do       string `json:"do"`
	Receiver string `json:"receiver"`
	// Channel of a publish or a delivery; the pattern of a subscribe.
	Channel string `json:"channel"`
	// ID that the server gave to the message; of a publish without an answer it is empty.
	ID string `json:"id"`
	// Item is what the publisher calls its message, in whatever number of publishes.
	Item string `json:"item"`
	// New is the id under which a redrive sent the message again.
	New   string `json:"new"`
	Began int64  `json:"began"`
	// Ended is when the answer came; nil: it never came, so the operation may have happened at any time since, or not at all.
	Ended *int64 `json:"ended"`
}

// undoneByFault is for how long before a fault an acknowledgement may have been answered and not yet stored: the server stores
// them each 0.2 s, and later on a busy machine.
const undoneByFault = int64(1e9)

// read returns the records of a file with one JSON object a line.
func read(file io.Reader) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		var record Record
		if err := decoder.Decode(&record); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(records)+1, err)
		}
		records = append(records, record)
	}
	return records, lines.Err()
}

// history knows of all records what one partition must know of the others.
type history struct {
	records []Record
	// first has the id under which a message was published, by each id that a redrive gave it.
	first map[string]string
	// items by the ids that publishes were answered.
	items map[string]string
}

func newHistory(records []Record) *history {
	h := &history{first: map[string]string{}, items: map[string]string{}}
	var faults []Record
	for _, each := range records {
		switch each.Do {
		case "redrive":
			h.first[each.New] = each.ID
		case "publish":
			if each.ID != "" {
				h.items[each.ID] = each.Item
			}
		case "fault":
			faults = append(faults, each)
		}
	}
	unanswered := map[string]Record{}
	for _, each := range records {
		switch each.Do {
		case "publish":
			if _, is := unanswered[each.Item]; !is {
				unanswered[each.Item] = each
			}
			if each.ID == "" {
				continue // its ids are those under which it was delivered
			}
		case "acknowledge", "reject":
			if isInDoubt(each, faults) {
				each.Ended = nil
			}
		}
		h.records = append(h.records, each)
	}
	earliest := map[string]int64{}
	for _, each := range records {
		if came, is := earliest[each.ID]; each.Do == "deliver" && (!is || each.Began < came) {
			earliest[each.ID] = each.Began
		}
	}
	for _, each := range records {
		if each.Do != "deliver" || h.original(each.ID) != each.ID || h.items[each.ID] != "" {
			continue
		}
		if publish, is := unanswered[each.Item]; is { // one of its publishes was not answered, and was stored
			h.items[each.ID] = each.Item
			publish.ID, publish.Ended = each.ID, nil
			// It was stored before its first copy came. Without this end, each of them may be stored at any time, and with some
			// of them at once the checker does not come to an end.
			if came := earliest[each.ID]; came >= publish.Began {
				publish.Ended = &came
			}
			h.records = append(h.records, publish)
		}
	}
	return h
}

func (h *history) original(id string) string {
	for h.first[id] != "" {
		id = h.first[id]
	}
	return id
}

func isInDoubt(record Record, faults []Record) bool {
	for _, fault := range faults {
		if record.Ended != nil && record.Began <= end(fault) && *record.Ended >= fault.Began-undoneByFault {
			return true
		}
	}
	return record.Ended == nil
}

func end(record Record) int64 {
	if record.Ended == nil {
		return math.MaxInt64
	}
	return *record.Ended
}

// matches says whether a pattern of Bayeux 1.0 (a channel, or with /* or /** at its end) matches a channel.
func matches(pattern, channel string) bool {
	if prefix, is := strings.CutSuffix(pattern, "/**"); is {
		return strings.HasPrefix(channel, prefix+"/")
	}
	if prefix, is := strings.CutSuffix(pattern, "/*"); is {
		rest, below := strings.CutPrefix(channel, prefix+"/")
		return below && !strings.Contains(rest, "/")
	}
	return pattern == channel
}
