import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** A servlet whose requests cost what they say: {@code /burn?cpu_ms=20&sleep_ms=10}, {@code /query}, {@code /healthz}. */
public final class Burn extends HttpServlet {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final long LONGEST_MS = 60_000;

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setContentType("text/plain");
        switch (request.getServletPath()) {
            case "/healthz" -> response.getWriter().println("ok");
            case "/burn" -> response.getWriter().println(burn(number(request, "cpu_ms"), number(request, "sleep_ms")));
            case "/query" -> query(response);
            default -> response.sendError(HttpServletResponse.SC_NOT_FOUND);
        }
    }

    private static long number(HttpServletRequest request, String name) {
        String text = request.getParameter(name);
        return text == null ? 0 : Math.min(Long.parseLong(text), LONGEST_MS);
    }

    private static long burn(long cpuMillis, long sleepMillis) throws IOException {
        long end = THREADS.getCurrentThreadCpuTime() + cpuMillis * 1_000_000;
        long state = 88_172_645_463_325_252L;
        while (THREADS.getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 4096; i++) {
                state ^= state << 13;
                state ^= state >>> 7;
                state ^= state << 17;
            }
        }
        try {
            Thread.sleep(sleepMillis);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
        return state;
    }

    /** Asks the database that {@code DB_ADDR} names; weal puts it into the environment because the config says {@code needs}. */
    private static void query(HttpServletResponse response) throws IOException {
        String url = "jdbc:postgresql://" + System.getenv("DB_ADDR") + "/postgres?user=postgres&connectTimeout=5&socketTimeout=10";
        try (Connection connection = DriverManager.getConnection(url);
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT sum(n) FROM generate_series(1, 10000) AS n")) {
            rows.next();
            response.getWriter().println(rows.getLong(1));
        } catch (SQLException error) {
            response.sendError(HttpServletResponse.SC_BAD_GATEWAY, error.getMessage());
        }
    }
}
