<%@ page contentType="text/plain" session="false" import="java.io.File,java.lang.management.ManagementFactory,java.nio.file.Files" %><%!
// CPU, memory and disk, as section 5's benchmark page: so many milliseconds of this thread's CPU time, 256 KiB of garbage, 16 KiB to a file and back.
private static long number(String text) { return text == null ? 0 : Math.min(Long.parseLong(text), 10_000); }
%><%
long end = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() + number(request.getParameter("cpu_ms")) * 1_000_000;
byte[] garbage = new byte[256 * 1024];
File file = File.createTempFile("work", null);
Files.write(file.toPath(), java.util.Arrays.copyOf(garbage, 16 * 1024));
long state = 88172645463325252L + Files.readAllBytes(file.toPath()).length;
file.delete();
do {
    for (int i = 0; i < 4096; i++) {
        state ^= state << 13;
        state ^= state >>> 7;
        state ^= state << 17;
        garbage[(int) (state >>> 46)] = (byte) state;
    }
} while (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() < end);
out.print(state);
%>
