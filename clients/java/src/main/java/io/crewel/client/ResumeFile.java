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
        if (secret == null) {
            Files.deleteIfExists(path);
            return;
        }
        Files.createDirectories(path.getParent());
        Path beside = path.resolveSibling("." + path.getFileName() + "." + ProcessHandle.current().pid());
        Files.deleteIfExists(beside);
        var options = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        try (FileChannel target = FileChannel.open(beside, options, ownerOnly())) {
            target.write(ByteBuffer.wrap((secret + "\n").getBytes(StandardCharsets.US_ASCII)));
            target.force(true);
        }
        Files.move(beside, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    }

    /** The attributes of a file that only its owner can read. */
    static FileAttribute<?>[] ownerOnly() {
        boolean hasPermissions = FileSystems.getDefault().supportedFileAttributeViews().contains("posix");
        return hasPermissions
            ? new FileAttribute<?>[] {PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))}
            : new FileAttribute<?>[0];
    }
}
