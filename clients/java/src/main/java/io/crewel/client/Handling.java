package io.crewel.client;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * One delivery, while its listeners process it. It ends when all of them have finished; the first failure counts. The
 * extension's lock guards it.
 */
final class Handling {
    private final List<Subscription> expected;
    private final Consumer<Failure> ended;
    private int left;
    private Failure failure;

    /** @param expected the listeners that the client is about to call; @param ended called with the failure, or null */
    Handling(List<Subscription> expected, Consumer<Failure> ended) {
        this.expected = new ArrayList<>(expected);
        this.ended = ended;
        left = expected.size();
    }

    /** The client calls a listener. False if it was not expected, or was called before. */
    boolean take(Subscription subscription) {
        return expected.remove(subscription);
    }

    /** A listener takes a message that none was there for. */
    void join() {
        left++;
    }

    /** The application has ended a subscription, whose listener the client will not call any more. */
    void forsake(Subscription subscription) {
        if (expected.remove(subscription)) {
            end();
        }
    }

    void failed(Failure reason) {
        if (failure == null) {
            failure = reason;
        }
    }

    /** A listener has finished. */
    void end() {
        left--;
        if (left <= 0) {
            ended.accept(failure);
        }
    }
}
