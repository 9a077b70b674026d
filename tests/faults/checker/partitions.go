package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// partition is a part of a history that can be judged alone.
type partition struct {
	name       string
	model      porcupine.Model
	operations []porcupine.Operation
}

// partitions returns one log for each receiver and channel that it hears, and one queue for each receiver and message.
func (h *history) partitions() []partition {
	subscribes := map[string][]Record{}
	publishes := map[string][]Record{}
	ofReceiver := map[string]map[string][]Record{} // receiver -> channel -> what concerns the receiver alone
	channels := map[string]string{}                // of each id
	var settled []Record
	for _, each := range h.records {
		switch each.Do {
		case "subscribe":
			subscribes[each.Receiver] = append(subscribes[each.Receiver], each)
		case "publish":
			publishes[each.Channel] = append(publishes[each.Channel], each)
			channels[each.ID] = each.Channel
		case "settled":
			settled = append(settled, each)
		}
	}
	for _, each := range h.records {
		switch each.Do {
		case "deliver", "acknowledge", "reject", "redrive", "letter":
			channel := each.Channel
			if channel == "" {
				channel = channels[h.original(each.ID)]
			}
			if ofReceiver[each.Receiver] == nil {
				ofReceiver[each.Receiver] = map[string][]Record{}
			}
			ofReceiver[each.Receiver][channel] = append(ofReceiver[each.Receiver][channel], each)
		}
	}
	for receiver := range subscribes {
		if ofReceiver[receiver] == nil {
			ofReceiver[receiver] = map[string][]Record{}
		}
	}
	logs := map[string][]Record{}
	for channel, each := range publishes {
		logs[channel] = inOrderOfIDs(each)
	}
	var found []partition
	for receiver, ofChannel := range ofReceiver {
		for channel := range publishes {
			if _, has := ofChannel[channel]; !has {
				ofChannel[channel] = nil
			}
		}
		for channel, own := range ofChannel {
			found = append(found, h.ofOne(receiver, channel, own, publishes[channel], logs[channel], subscribes[receiver], settled)...)
		}
	}
	return found
}

// inOrderOfIDs returns publishes with the times at which a log can have stored them: not before one with a smaller id began, and
// not after one with a larger id ended. Otherwise the checker tries orders that cannot be: messages that were sent twice over ten
// seconds, beside hundreds of others, were too many for it. If the times contradict the ids, it gets them as they are, and refuses them.
func inOrderOfIDs(publishes []Record) []Record {
	ordered := slices.Clone(publishes)
	slices.SortStableFunc(ordered, func(a, b Record) int { return cmp.Compare(number(a.ID), number(b.ID)) })
	began := int64(0)
	for i, each := range ordered {
		if each.Ended == nil {
			continue // it may have no place among the others
		}
		began = max(began, each.Began)
		ordered[i].Began = began
	}
	ended := int64(math.MaxInt64)
	for i := len(ordered) - 1; i >= 0; i-- {
		each := ordered[i]
		if each.Ended == nil {
			continue
		}
		ended = min(ended, *each.Ended)
		if ended < each.Began {
			return publishes
		}
		last := ended
		ordered[i].Ended = &last
	}
	return ordered
}

func number(id string) int64 {
	found, _ := strconv.ParseInt(id, 10, 64)
	return found
}

// ofOne returns the log of a receiver and a channel, and the queues of its messages.
func (h *history) ofOne(receiver, channel string, own, publishes, inOrder, subscribes, settled []Record) []partition {
	frame := append([]Record{}, settled...)
	for _, each := range subscribes {
		if matches(each.Channel, channel) {
			frame = append(frame, each)
		}
	}
	log := append(append([]Record{}, frame...), inOrder...)
	messages := map[string][]Record{}
	for _, each := range publishes {
		messages[each.ID] = append(messages[each.ID], each)
	}
	for _, each := range own {
		first := h.original(each.ID)
		messages[first] = append(messages[first], each)
		if each.Do == "deliver" && first == each.ID { // what a redrive sent again comes in another place
			log = append(log, each)
		}
	}
	where := fmt.Sprintf("%s on %s", receiver, channel)
	found := []partition{{"log of " + where, logModel, operations(log)}}
	for first, records := range messages {
		name := fmt.Sprintf("queue of %s, message %s", where, first)
		found = append(found, partition{name, queueModel, operations(append(records, frame...))})
	}
	return found
}

func operations(records []Record) []porcupine.Operation {
	sort.SliceStable(records, func(i, j int) bool { return records[i].Began < records[j].Began })
	var found []porcupine.Operation
	for _, each := range records {
		found = append(found, porcupine.Operation{Input: each, Call: each.Began, Return: end(each)})
	}
	return found
}
