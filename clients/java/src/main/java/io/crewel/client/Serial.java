package io.crewel.client;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Runs tasks one after another, in their order, on a thread that it has only while there are some. */
final class Serial implements Executor {
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "crewel-listener");
        thread.setDaemon(true);
        return thread;
    });

    private final Queue<Runnable> waiting = new ArrayDeque<>();
    private boolean isRunning;

    @Override
    public void execute(Runnable task) {
        synchronized (waiting) {
            waiting.add(task);
            if (isRunning) {
                return;
            }
            isRunning = true;
        }
        THREADS.execute(this::runAll);
    }

    private void runAll() {
        for (Runnable task = next(); task != null; task = next()) {
            try {
                task.run();
            } catch (RuntimeException | Error failure) {
                Thread thread = Thread.currentThread();
                thread.getUncaughtExceptionHandler().uncaughtException(thread, failure);
            }
            Thread.interrupted(); // it was for this task: THREADS is never shut down, so none is for the loop
        }
    }

    private Runnable next() {
        synchronized (waiting) {
            Runnable task = waiting.poll();
            isRunning = task != null;
            return task;
        }
    }
}
