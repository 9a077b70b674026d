package example;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;

/** What was baked, by the id of the order: a line for each. In an application, a table with a unique key. */
final class Book {
    private final Set<String> ids = new HashSet<>();
    private final FileChannel file;

    Book(Path path) throws IOException {
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        String text = Files.readString(path);
        String whole = text.substring(0, text.lastIndexOf('\n') + 1); // a kill may have left half a line
        whole.lines().forEach(line -> ids.add(line.split(" ", 2)[0]));
        file.truncate(whole.getBytes(StandardCharsets.UTF_8).length).position(file.size());
    }

    boolean hasPage(String id) {
        return ids.contains(id);
    }

    /** The line is on disk when this returns. */
    void write(String id, String what) throws IOException {
        file.write(ByteBuffer.wrap((id + " " + what + "\n").getBytes(StandardCharsets.UTF_8)));
        file.force(false);
        ids.add(id);
    }
}
