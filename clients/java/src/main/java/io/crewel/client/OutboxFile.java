package io.crewel.client;

import java.io.Closeable;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.StringReader;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.text.ParseException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.cometd.common.JSONContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The publishes of an outbox, in memory and in a file: one line of JSON for each that was added, and one for each that was
 * accepted or refused. What is in memory follows from the lines. A kill may cut the last line off: its publish was not confirmed to the
 * caller. The file is written again without what has ended when it is opened, and when it has grown. The lock of the outbox
 * guards it.
 */
final class OutboxFile implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(OutboxFile.class);
    private static final String VERSION = "crewel.outbox";
    private static final long FORMAT = 1;
    private static final long SMALL = 1024 * 1024; // bytes of a file that is not written again, except when it is opened

    private static final Set<Path> OPEN = ConcurrentHashMap.newKeySet(); // in this process

    private final Path path;
    private final JSONContext.Client json;
    private final Map<String, Waiting> waiting = new LinkedHashMap<>(); // by key, oldest first
    private final Map<String, Refused> refused = new LinkedHashMap<>();
    private long bytes; // of the lines that wait
    private FileChannel lock;
    private RandomAccessFile file; // null until it is written to; no channel, which an interrupt of the caller would close
    private boolean isMoved; // to its name, which may not be on disk
    private long size; // of what was written as a whole
    private long large; // a file of more bytes is written again

    /** The line of a publish, and its lane. */
    private record Waiting(String line, String lane) { }

    /** A refused publish, as two lines. */
    private record Refused(String added, String ended) { }

    /** What the server has answered to the publish with this key; no refusal: it has accepted it. */
    record Outcome(String key, Failure refusal) { }

    /**
     * Opens the file.
     *
     * @throws IllegalStateException if another outbox uses it
     */
    OutboxFile(Path path, JSONContext.Client json) throws IOException {
        ResumeFile.makeDirectory(path.toAbsolutePath().getParent());
        var options = Set.of(StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        FileChannel.open(path, options, ResumeFile.ownerOnly()).close(); // so that there is a file to which a link may point
        this.path = path.toRealPath();
        this.json = json;
        if (!OPEN.add(this.path)) { // the lock is of the process: to close its file a second time would give it up
            throw inUse();
        }
        try {
            lock();
            read();
            shrink();
        } catch (IOException | RuntimeException failure) {
            close();
            throw failure;
        }
    }

    /** Another file is locked: this one is replaced when it is written again. */
    private void lock() throws IOException {
        var options = Set.of(StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        lock = FileChannel.open(path.resolveSibling(path.getFileName() + ".lock"), options, ResumeFile.ownerOnly());
        if (lock.tryLock() == null) {
            throw inUse();
        }
    }

    private IllegalStateException inUse() {
        return new IllegalStateException("the outbox " + path + " is in use: one client of one process has it at a time");
    }

    private void read() throws IOException {
        byte[] content = Files.readAllBytes(path);
        int end = content.length;
        while (end > 0 && content[end - 1] != '\n') {
            end--;
        }
        if (end == 0 && content.length > 0) {
            throw new IOException("the file " + path + " is no outbox");
        }
        size = end;
        // Bytes that are no UTF-8 become marks, and their line is no JSON.
        String whole = new String(content, 0, end, StandardCharsets.UTF_8);
        int number = 0;
        for (String line : whole.lines().toList()) {
            number++;
            Map<String, Object> fields;
            try {
                fields = parsed(line);
            } catch (IllegalArgumentException failure) {
                throw new IOException("the outbox " + path + " is damaged: line " + number + " is not JSON", failure);
            }
            if (number == 1 && Ext.whole(fields.get(VERSION), 0) != FORMAT) {
                throw new IOException("the file " + path + " is no outbox of format " + FORMAT);
            }
            apply(line, fields);
        }
    }

    /** The fields of a line. */
    Map<String, Object> parsed(String line) {
        try {
            return Ext.fields(json.getParser().parse(new StringReader(line), Object.class));
        } catch (ParseException | RuntimeException failure) {
            throw new IllegalArgumentException(failure);
        }
    }

    private void apply(String line, Map<String, Object> fields) {
        String key = fields.get("key") instanceof String text ? text : null; // which may be empty
        if (fields.containsKey("channel")) {
            refused.remove(key);
            waiting.put(key, new Waiting(line, lane(fields)));
            bytes += sizeOf(line);
        } else if (key != null) {
            Waiting added = waiting.remove(key);
            if (added != null) {
                bytes -= sizeOf(added.line());
                if (fields.containsKey("errorCode")) {
                    refused.put(key, new Refused(added.line(), line));
                }
            }
        } else if (fields.containsKey("forgotten")) {
            refused.clear();
        }
    }

    static int sizeOf(String line) {
        return line.getBytes(StandardCharsets.UTF_8).length;
    }

    int waiting() {
        return waiting.size();
    }

    long bytes() {
        return bytes;
    }

    boolean isWaiting(String key) {
        return waiting.containsKey(key);
    }

    /** Within a lane, publishes keep their order: those of a channel, and apart from them those of it that are scheduled. */
    static String lane(Map<String, Object> fields) {
        Map<String, Object> publish = Ext.fields(fields.get("publish"));
        boolean isScheduled = publish.containsKey("deliverAt") || publish.containsKey("deliverAfter");
        return (isScheduled ? "scheduled " : "") + fields.get("channel");
    }

    String line(Map<String, Object> fields) {
        return json.getGenerator().generate(fields).replace('\n', ' ').replace('\r', ' '); // which only indent
    }

    /**
     * Adds the line of a publish; it is on disk then. A refused one with this key goes.
     *
     * @throws IllegalArgumentException if the JSON library does not read back what it has written
     */
    void add(String line) throws IOException {
        append(List.of(line));
    }

    /** So many that wait, not in lanes that rest, the oldest first: one at least, and else no more than have so many bytes. */
    List<Map<String, Object>> oldest(int most, int room, Set<String> resting) {
        List<Map<String, Object>> taken = new ArrayList<>();
        int left = room;
        for (Waiting each : waiting.values()) {
            if (resting.contains(each.lane())) {
                continue;
            }
            left -= sizeOf(each.line());
            if (taken.size() == most || !taken.isEmpty() && left < 0) {
                break;
            }
            taken.add(parsed(each.line()));
        }
        return taken;
    }

    /** Notes what the server has answered. */
    void settle(List<Outcome> outcomes) throws IOException {
        List<String> lines = new ArrayList<>();
        for (Outcome outcome : outcomes) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("key", outcome.key());
            if (outcome.refusal() != null) {
                fields.put("errorCode", outcome.refusal().errorCode());
                fields.put("message", outcome.refusal().message());
            }
            lines.add(line(fields));
        }
        append(lines);
        if (size > large) {
            shrink();
        }
    }

    List<RefusedPublish> refused() {
        return refused.values().stream().map(each -> {
            Map<String, Object> added = parsed(each.added());
            Map<String, Object> ended = parsed(each.ended());
            String channelName = added.get("channel").toString();
            return new RefusedPublish(
                added.get("key").toString(), channelName, added.get("data"), ended.get("errorCode").toString(),
                String.valueOf(ended.get("message"))
            );
        }).toList();
    }

    void forgetRefused() throws IOException {
        append(List.of(line(Map.of("forgotten", true))));
    }

    /** Writes lines to the disk, and obeys them: all, or none if that fails. */
    private void append(List<String> lines) throws IOException {
        if (lines.isEmpty()) {
            return;
        }
        // Before anything is written: a line that is not read back would damage the file.
        List<Map<String, Object>> parsed = lines.stream().map(this::parsed).toList();
        if (!lock.isOpen()) {
            throw new ClosedChannelException(); // another outbox may have the file
        }
        if (isMoved) {
            forceDirectory();
        }
        if (file == null) {
            file = new RandomAccessFile(path.toFile(), "rw");
        }
        file.setLength(size); // without what an earlier attempt has left, on a disk that was full
        size = write(file, lines, size);
        for (int number = 0; number < parsed.size(); number++) {
            apply(lines.get(number), parsed.get(number));
        }
    }

    private static long write(RandomAccessFile target, List<String> lines, long from) throws IOException {
        byte[] bytes = (String.join("\n", lines) + "\n").getBytes(StandardCharsets.UTF_8);
        target.seek(from);
        target.write(bytes);
        target.getFD().sync();
        return from + bytes.length;
    }

    /** Writes the file again if it can: the disk may have room for lines, and not for another file. */
    private void shrink() throws IOException {
        try {
            rewrite();
        } catch (IOException failure) {
            if (size == 0) {
                throw failure; // there is no old one
            }
            LOG.warn("the outbox {} cannot be written again without what has ended; trying later", path, failure);
        }
    }

    /** Replaces the file by one with what has not ended. If that fails, the old one stays in use. */
    private void rewrite() throws IOException {
        List<String> lines = new ArrayList<>(List.of(line(Map.of(VERSION, FORMAT))));
        refused.values().forEach(each -> lines.addAll(List.of(each.added(), each.ended())));
        waiting.values().forEach(each -> lines.add(each.line()));
        Path beside = path.resolveSibling(path.getFileName() + ".new");
        Files.deleteIfExists(beside);
        var options = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        FileChannel.open(beside, options, ResumeFile.ownerOnly()).close();
        long written;
        try {
            try (RandomAccessFile made = new RandomAccessFile(beside.toFile(), "rw")) {
                written = write(made, lines, 0);
            }
            closeFile(); // Windows does not replace an open file
            Files.move(beside, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } catch (IOException failure) {
            Files.deleteIfExists(beside); // it takes room that the lines to come need
            throw failure;
        }
        size = written;
        large = Math.max(SMALL, 2 * size);
        isMoved = true;
        forceDirectory();
    }

    /** Else a loss of power could bring the old file back. */
    private void forceDirectory() throws IOException {
        if (path.getFileSystem().supportedFileAttributeViews().contains("posix")) { // others cannot open a directory
            boolean isInterrupted = Thread.interrupted(); // which would close the channel
            try (FileChannel directory = FileChannel.open(path.getParent())) {
                directory.force(true);
            } finally {
                if (isInterrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }
        isMoved = false;
    }

    private void closeFile() throws IOException {
        RandomAccessFile open = file;
        file = null;
        if (open != null) {
            open.close();
        }
    }

    @Override
    public void close() throws IOException {
        try {
            closeFile();
        } finally {
            if (lock != null) {
                lock.close();
            }
            OPEN.remove(path);
        }
    }
}
