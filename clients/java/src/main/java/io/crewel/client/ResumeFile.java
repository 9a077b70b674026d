package io.crewel.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.FileChannel;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/** Keeps the secret of a session, so that the next process takes the session over at once. */
final class ResumeFile {
    private final Path path;

    ResumeFile(Path path) {
        this.path = path.toAbsolutePath();
    }

    /** The secret; null if there is none. */
    String read() {
        try {
            String secret = Files.readString(path, StandardCharsets.US_ASCII).strip();
            return secret.isEmpty() ? null : secret;
        } catch (NoSuchFileException none) {
            return null;
        } catch (IOException failure) {
            throw new UncheckedIOException("the resume file cannot be read: " + path, failure);
        }
    }

    /** Replaces the file: a process that is killed at any moment leaves a secret that still holds. Null removes it. */
    void write(String secret) throws IOException {
        Path target = target();
        if (secret == null) {
            Files.deleteIfExists(target);
            return;
        }
        makeDirectory(path.getParent());
        Path beside = target.resolveSibling("." + target.getFileName() + "." + ProcessHandle.current().pid());
        Files.deleteIfExists(beside);
        var options = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        try (FileChannel made = FileChannel.open(beside, options, ownerOnly())) {
            made.write(ByteBuffer.wrap((secret + "\n").getBytes(StandardCharsets.US_ASCII)));
            made.force(true);
        }
        Files.move(beside, target, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    }

    /** The file to which a link points: the link stays. */
    private Path target() throws IOException {
        if (Files.exists(path)) {
            return path.toRealPath();
        }
        return Files.isSymbolicLink(path) ? path.resolveSibling(Files.readSymbolicLink(path)) : path;
    }

    /** Makes a directory, and those in which it is, unless it is there, perhaps as a link, which Java 17 does not accept. */
    static void makeDirectory(Path directory) throws IOException {
        if (!Files.isDirectory(directory)) {
            Files.createDirectories(directory);
        }
    }

    /** The attributes of a file that only its owner can read. */
    static FileAttribute<?>[] ownerOnly() {
        boolean hasPermissions = FileSystems.getDefault().supportedFileAttributeViews().contains("posix");
        return hasPermissions
            ? new FileAttribute<?>[] {PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))}
            : new FileAttribute<?>[0];
    }
}
