package io.crewel.client;

/** Answers requests. */
@FunctionalInterface
public interface Responder {
    /**
     * Answers a request.
     *
     * @param request the request
     * @return the data of the answer, or a {@link java.util.concurrent.CompletionStage} that completes with it
     * @throws ErrorAnswerException to answer with a code and words
     * @throws Exception anything else becomes {@code internal.unknown}, without its words
     */
    Object answer(Delivery request) throws Exception;
}
