<%@ page contentType="text/plain" session="false" %><%
// Section 4's memory-bound application: the first request fills as many MiB as it says, later ones read all of them.
byte[][] array = (byte[][]) application.getAttribute("array");
String mib = request.getParameter("mib");
if (mib != null && (array == null || array.length != 4 * Integer.parseInt(mib))) {
    application.removeAttribute("array");
    array = new byte[4 * Integer.parseInt(mib)][];
    java.util.Random random = new java.util.Random(1);
    for (int i = 0; i < array.length; i++) random.nextBytes(array[i] = new byte[256 * 1024 - 16]);
    application.setAttribute("array", array);
}
long sum = 0;
if (array != null) for (byte[] block : array) for (int i = 0; i < block.length; i += 4096) sum += block[i];
out.print(sum);
%>
