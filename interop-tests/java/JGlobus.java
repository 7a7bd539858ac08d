// Drives the GridFTP client of JGlobus, the Java implementation that dCache and others use.
//
// usage: java JGlobus.java PROXY HOST SOURCE_PORT DESTINATION_PORT ACTION REMOTE LOCAL OPTIONS...
//
// The actions get, put and copy run once for each OPTIONS, a comma separated list of: stream, extended,
// parallel=N, dcau=none, protection=clear|safe|private. They get REMOTE into LOCAL.OPTIONS, put LOCAL to
// REMOTE.OPTIONS, and copy REMOTE to LOCAL.OPTIONS, a name at the destination. The action names walks
// through the commands on names in the directory REMOTE, and prints the results.

import java.io.File;
import java.io.RandomAccessFile;
import java.util.Vector;
import org.globus.ftp.ChecksumAlgorithm;
import org.globus.ftp.DataChannelAuthentication;
import org.globus.ftp.DataSink;
import org.globus.ftp.DataSource;
import org.globus.ftp.FileRandomIO;
import org.globus.ftp.GridFTPClient;
import org.globus.ftp.GridFTPSession;
import org.globus.ftp.MlsxEntry;
import org.globus.ftp.RetrieveOptions;
import org.globus.gsi.X509Credential;
import org.globus.gsi.gssapi.GlobusGSSCredentialImpl;
import org.ietf.jgss.GSSCredential;

public class JGlobus {
    final String proxy;
    final String host;

    JGlobus(String proxy, String host) {
        this.proxy = proxy;
        this.host = host;
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception error) {
            // The launcher of single-file programs cannot print some exceptions of JGlobus.
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String[] arguments) throws Exception {
        JGlobus program = new JGlobus(arguments[0], arguments[1]);
        int source = Integer.parseInt(arguments[2]);
        int destination = Integer.parseInt(arguments[3]);
        String remote = arguments[5];
        String local = arguments[6];
        for (int index = 7; index < arguments.length; index++) {
            Options options = new Options(arguments[index]);
            String suffix = "." + arguments[index];
            GridFTPClient client = program.connect(source, options);
            switch (arguments[4]) {
                case "get" -> get(client, options, remote, local + suffix);
                case "put" -> put(client, options, local, remote + suffix);
                case "names" -> names(client, options, remote);
                case "copy" -> {
                    GridFTPClient other = program.connect(destination, options);
                    copy(client, options, remote, other, local + suffix);
                    other.close();
                }
                default -> throw new IllegalArgumentException(arguments[4]);
            }
            client.close();
        }
    }

    GridFTPClient connect(int port, Options options) throws Exception {
        GSSCredential credential =
                new GlobusGSSCredentialImpl(new X509Credential(proxy), GSSCredential.INITIATE_AND_ACCEPT);
        GridFTPClient client = new GridFTPClient(host, port);
        client.authenticate(credential);
        client.setType(GridFTPSession.TYPE_IMAGE);
        if (options.has("extended")) {
            client.setMode(GridFTPSession.MODE_EBLOCK);
        }
        String channels = options.value("parallel");
        if (channels != null) {
            client.setOptions(new RetrieveOptions(Integer.parseInt(channels)));
        }
        if ("none".equals(options.value("dcau"))) {
            client.setDataChannelAuthentication(DataChannelAuthentication.NONE);
        }
        String protection = options.value("protection");
        if (protection != null) {
            client.setProtectionBufferSize(16384);
            client.setDataChannelProtection(
                    switch (protection) {
                        case "safe" -> GridFTPSession.PROTECTION_SAFE;
                        case "private" -> GridFTPSession.PROTECTION_PRIVATE;
                        default -> GridFTPSession.PROTECTION_CLEAR;
                    });
        }
        return client;
    }

    static void get(GridFTPClient client, Options options, String remote, String local) throws Exception {
        long bytes = client.getSize(remote);
        DataSink sink = new FileRandomIO(new RandomAccessFile(local, "rw"));
        // In MODE E the sender connects, so the client listens.
        if (options.has("extended")) {
            client.setLocalPassive();
            client.setActive();
            client.extendedGet(remote, bytes, sink, null);
        } else {
            client.setPassive();
            client.setLocalActive();
            client.get(remote, sink, null);
        }
        sink.close();
    }

    static void put(GridFTPClient client, Options options, String local, String remote) throws Exception {
        DataSource source = new FileRandomIO(new RandomAccessFile(local, "r"));
        client.setPassive();
        client.setLocalActive();
        if (options.has("extended")) {
            client.extendedPut(remote, source, null);
        } else {
            client.put(remote, source, null);
        }
        source.close();
    }

    static void copy(GridFTPClient from, Options options, String source, GridFTPClient to, String destination)
            throws Exception {
        if (options.has("extended")) {
            from.extendedTransfer(source, to, destination, null);
        } else {
            from.transfer(source, to, destination, false, null);
        }
    }

    /** Walks through the commands on names, in a directory that is there and empty. */
    static void names(GridFTPClient client, Options options, String directory) throws Exception {
        client.makeDir(directory + "/made");
        say("made", client.exists(directory + "/made"));
        File file = File.createTempFile("jglobus", null);
        file.deleteOnExit();
        try (RandomAccessFile content = new RandomAccessFile(file, "rw")) {
            content.writeBytes("twelve bytes");
        }
        put(client, options, file.getPath(), directory + "/made/file");
        say("size", client.getSize(directory + "/made/file"));
        say("checksum", client.checksum(new ChecksumAlgorithm("ADLER32"), 0, -1, directory + "/made/file"));
        client.rename(directory + "/made/file", directory + "/made/renamed");
        MlsxEntry facts = client.mlst(directory + "/made/renamed");
        say("type", facts.get(MlsxEntry.TYPE));
        say("facts size", facts.get(MlsxEntry.SIZE));
        client.setPassive();
        client.setLocalActive();
        Vector<?> entries = client.mlsd(directory + "/made");
        for (Object entry : entries) {
            String name = ((MlsxEntry) entry).getFileName();
            if (!name.equals(".") && !name.equals("..")) {
                say("entry", name);
            }
        }
        client.changeDir(directory + "/made");
        say("here", client.getCurrentDir().endsWith("/made"));
        client.goUpDir();
        client.deleteFile(directory + "/made/renamed");
        client.deleteDir(directory + "/made");
        say("left", client.exists(directory + "/made"));
        try {
            client.getSize(directory + "/made/renamed");
        } catch (org.globus.ftp.exception.ServerException error) {
            say("missing", error.getMessage().contains("No such file or directory"));
        }
    }

    static void say(String what, Object value) {
        System.out.println(what + ": " + value);
    }

    /** How a transfer is done. */
    record Options(String text) {
        boolean has(String name) {
            return value(name) != null;
        }

        String value(String name) {
            for (String option : text.split(",")) {
                String[] parts = option.split("=", 2);
                if (parts[0].equals(name)) {
                    return parts.length > 1 ? parts[1] : "";
                }
            }
            return null;
        }
    }
}
