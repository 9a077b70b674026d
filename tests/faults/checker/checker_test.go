package main

import (
	"strconv"
	"strings"
	"testing"
)

func at(began, ended int64, record Record) Record {
	record.Began, record.Ended = began, &ended
	return record
}

func subscribe(began, ended int64) Record {
	return at(began, ended, Record{Do: "subscribe", Receiver: "amy", Channel: "/load/*"})
}

func publish(began, ended int64, id string) Record {
	return at(began, ended, Record{Do: "publish", Channel: "/load/a", ID: id, Item: "item " + id})
}

func deliver(when int64, id string) Record {
	return at(when, when, Record{Do: "deliver", Receiver: "amy", Channel: "/load/a", ID: id, Item: "item " + id})
}

func acknowledge(began, ended int64, id string) Record {
	return at(began, ended, Record{Do: "acknowledge", Receiver: "amy", ID: id})
}

func reject(began, ended int64, id string) Record {
	return at(began, ended, Record{Do: "reject", Receiver: "amy", ID: id})
}

func redrive(began, ended int64, id, other string) Record {
	return at(began, ended, Record{Do: "redrive", Receiver: "amy", ID: id, New: other})
}

func as(record Record, item string) Record {
	record.Item = item
	return record
}

func unanswered(record Record) Record {
	record.Ended = nil
	return record
}

func fault(began, ended int64) Record { return at(began, ended, Record{Do: "fault"}) }

func letter(when int64, id string) Record {
	return at(when, when, Record{Do: "letter", Receiver: "amy", ID: id})
}

const late = int64(1e12)

var settled = at(late, late, Record{Do: "settled"})

func run(records ...Record) []Record { return append(records, settled) }

var holds = map[string][]Record{
	"in order":                                     run(subscribe(0, 1), publish(2, 5, "1"), publish(6, 9, "2"), deliver(4, "1"), deliver(8, "2")),
	"published together":                           run(subscribe(0, 1), publish(2, 9, "2"), publish(3, 9, "1"), deliver(5, "1"), deliver(6, "2")),
	"before the subscription":                      run(publish(0, 1, "1"), subscribe(2, 3), publish(4, 5, "2"), deliver(6, "2")),
	"beside the subscription":                      run(publish(0, 5, "1"), subscribe(1, 4), publish(6, 7, "2"), deliver(8, "1"), deliver(9, "2")),
	"twice":                                        run(subscribe(0, 1), publish(2, 3, "1"), publish(4, 5, "2"), deliver(6, "1"), deliver(7, "2"), deliver(8, "1")),
	"no answer, and not stored":                    run(subscribe(0, 1), unanswered(as(publish(2, 2, ""), "item 1")), publish(4, 5, "2"), deliver(6, "2")),
	"no answer, and stored":                        run(subscribe(0, 1), unanswered(as(publish(2, 2, ""), "item 1")), publish(4, 5, "2"), deliver(6, "1"), deliver(7, "2")),
	"stored twice, answered once":                  run(subscribe(0, 1), as(publish(2, 9, "2"), "item 1"), deliver(5, "1"), as(deliver(8, "2"), "item 1")),
	"again before its acknowledgement is answered": run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), acknowledge(5, 9, "1"), deliver(7, "1")),
	"again after a fault has undone its acknowledgement": run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), acknowledge(5, 6, "1"), fault(7, 8), deliver(9, "1")),
	"a dead letter that comes back":                      run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), reject(5, 6, "1"), letter(7, "1"), redrive(8, 12, "1", "7"), as(deliver(10, "7"), "item 1"), acknowledge(11, 12, "7")),
	"a dead letter that stays":                           run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), reject(5, 6, "1"), letter(7, "1")),
}

func TestHistoriesThatHold(t *testing.T) {
	for name, records := range holds {
		if text, refusals := judge(records); len(refusals) > 0 {
			t.Errorf("%s: %s: %v", name, text, refusals)
		}
	}
}

var refused = map[string]struct {
	part    string
	records []Record
}{
	"lost":               {"log of amy", run(subscribe(0, 1), publish(2, 3, "1"), publish(4, 5, "2"), deliver(6, "1"))},
	"lost in the middle": {"log of amy", run(subscribe(0, 1), publish(2, 3, "1"), publish(4, 5, "2"), deliver(6, "2"))},
	"lost with a receiver that heard nothing": {"log of amy", run(subscribe(0, 1), publish(2, 3, "1"))},
	"in the wrong order":                      {"log of amy", run(subscribe(0, 1), publish(2, 3, "1"), publish(4, 5, "2"), deliver(6, "2"), deliver(7, "1"))},
	"ids against the order of the answers":    {"log of amy", run(subscribe(0, 1), publish(2, 3, "2"), publish(4, 5, "1"), deliver(6, "1"), deliver(7, "2"))},
	"before it was published":                 {"log of amy", run(subscribe(0, 1), deliver(2, "1"), publish(3, 4, "1"))},
	"never published":                         {"queue of amy", run(subscribe(0, 1), deliver(2, "1"))},
	"published before the subscription":       {"queue of amy", run(publish(0, 1, "1"), subscribe(2, 3), deliver(4, "1"))},
	"another message under its id":            {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), as(deliver(4, "1"), "item 9"))},
	"acknowledged and delivered again":        {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), acknowledge(5, 6, "1"), deliver(7, "1"))},
	"again, long after a fault":               {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), fault(5, 6), acknowledge(7, 8, "1"), deliver(9, "1"))},
	"acknowledged, and a dead letter":         {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), acknowledge(5, 6, "1"), letter(7, "1"))},
	"rejected, and no dead letter":            {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), reject(5, 6, "1"))},
	"rejected, and delivered again":           {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), reject(5, 6, "1"), letter(7, "1"), deliver(8, "1"))},
	"sent again, and lost":                    {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), reject(5, 6, "1"), redrive(7, 8, "1", "7"))},
	"sent again under its old id":             {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), reject(5, 6, "1"), redrive(7, 8, "1", "7"), deliver(9, "1"))},
	"sent again twice":                        {"queue of amy", run(subscribe(0, 1), publish(2, 3, "1"), deliver(4, "1"), reject(5, 6, "1"), redrive(7, 8, "1", "7"), redrive(9, 10, "1", "8"), as(deliver(11, "7"), "item 1"), as(deliver(12, "8"), "item 1"))},
	"without its end":                         {"the history has no operation settled", []Record{subscribe(0, 1)}},
}

func TestHistoriesThatAreRefused(t *testing.T) {
	for name, each := range refused {
		_, refusals := judge(each.records)
		if len(refusals) == 0 || !strings.Contains(strings.Join(refusals, "\n"), each.part) {
			t.Errorf("%s: want a refusal of the %s, got %q", name, each.part, refusals)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, each := range []struct {
		pattern, channel string
		does             bool
	}{
		{"/a/b", "/a/b", true}, {"/a/b", "/a/c", false},
		{"/a/*", "/a/b", true}, {"/a/*", "/a/b/c", false}, {"/a/*", "/ab/c", false}, {"/a/*", "/a", false},
		{"/a/**", "/a/b/c", true}, {"/**", "/a", true}, {"/a/**", "/ab/c", false},
	} {
		if matches(each.pattern, each.channel) != each.does {
			t.Errorf("%s, %s: want %v", each.pattern, each.channel, each.does)
		}
	}
}

func TestAHistoryThatCannotBeRead(t *testing.T) {
	_, err := read(strings.NewReader("{\"do\": \"settled\"}\n{\"did\": \"settled\"}\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("want the line that is wrong, got %v", err)
	}
}

func TestAPublishWithoutAnAnswerWasStoredBeforeItsFirstCopyCame(t *testing.T) {
	h := newHistory(run(subscribe(0, 1), unanswered(as(publish(2, 2, ""), "item 1")), deliver(4, "1"), deliver(9, "1")))
	stored := h.records[len(h.records)-1]
	if stored.Do != "publish" || stored.ID != "1" || stored.Ended == nil || *stored.Ended != 4 {
		t.Errorf("want a publish that ended at 4, got %+v", stored)
	}
}

// A node is stopped for ten seconds, its publisher sends twelve messages again elsewhere, and the node answers when it goes on:
// each is stored twice, and the second time it may have been any time within twenty seconds, as far as the times tell:
// before publishes were ordered by their ids, the checker ran out of time.
func TestMessagesThatWereStoredTwiceBesideManyOthersAreJudged(t *testing.T) {
	const twice, others, second = 12, 300, int64(1e9)
	records := []Record{subscribe(0, 1)}
	first := func(n int) string { return strconv.Itoa(1001 + n) }
	again := func(n int) string { return strconv.Itoa(9001 + n) }
	for n := 0; n < twice; n++ {
		records = append(records, publish(second, 11*second, first(n)))
	}
	for n := 0; n < twice; n++ {
		records = append(records, deliver(11*second, first(n)))
	}
	for n := 0; n < others; n++ {
		when := 11*second + int64(1+n)*second/100
		id := strconv.Itoa(2001 + n)
		records = append(records, publish(when, when+2, id), deliver(when+1, id))
	}
	for n := 0; n < twice; n++ {
		records = append(records, as(deliver(21*second, again(n)), "item "+first(n)))
	}
	for n := 0; n < twice; n++ { // which was not answered there
		records = append(records, as(publish(second, 21*second, again(n)), "item "+first(n)))
	}
	if text, refusals := judge(run(records...)); len(refusals) > 0 {
		t.Errorf("%s: %v", text, refusals)
	}
	lost := append(records[:len(records)-1:len(records)-1], publish(second, 21*second, "9999"))
	if _, refusals := judge(run(lost...)); len(refusals) == 0 {
		t.Error("one that was answered and did not come was not noticed")
	}
}
