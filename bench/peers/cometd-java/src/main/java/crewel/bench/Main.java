package crewel.bench;

import jakarta.servlet.ServletContext;
import jakarta.servlet.ServletContextEvent;
import jakarta.servlet.ServletContextListener;
import org.cometd.bayeux.server.BayeuxServer;
import org.cometd.server.AbstractServerTransport;
import org.cometd.server.BayeuxServerImpl;
import org.cometd.server.JacksonJSONContextServer;
import org.cometd.server.ext.AcknowledgedMessagesExtension;
import org.cometd.server.http.JSONHttpTransport;
import org.cometd.server.http.jakarta.CometDServlet;
import org.cometd.server.websocket.jetty.JettyWebSocketTransport;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Context;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.websocket.server.WebSocketUpgradeHandler;

/**
 * CometD behind Jetty: long-polling through its servlet, WebSocket through Jetty's own API,
 * the JSON parser that its authors benchmark with, and the acknowledge extension.
 */
public final class Main {
    private static final String MAPPING = "/cometd/*";

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        HttpConfiguration http = new HttpConfiguration();
        http.setSendServerVersion(false);
        Server server = new Server();
        ServerConnector connector = new ServerConnector(server, new HttpConnectionFactory(http));
        connector.setHost("127.0.0.1");
        connector.setAcceptQueueSize(1024);
        connector.setIdleTimeout(75_000);
        server.addConnector(connector);

        ServletContextHandler context = new ServletContextHandler("/");
        server.setHandler(context);
        context.insertHandler(WebSocketUpgradeHandler.from(server, context));
        context.addServlet(servlet(), MAPPING);
        // The servlet finds the server that it shall serve here; it starts and stops with the context.
        context.addEventListener(starter(context));

        server.start();
        System.out.println("ready http://127.0.0.1:" + connector.getLocalPort() + "/cometd");
        server.join();
    }

    private static ServletHolder servlet() {
        ServletHolder holder = new ServletHolder(new CometDServlet());
        holder.setAsyncSupported(true);
        holder.setInitOrder(1);
        return holder;
    }

    private static ServletContextListener starter(ServletContextHandler context) {
        return new ServletContextListener() {
            @Override
            public void contextInitialized(ServletContextEvent event) {
                BayeuxServerImpl bayeux = new BayeuxServerImpl();
                bayeux.setOption(Context.class.getName(), context.getContext());
                bayeux.setOption(ServletContext.class.getName(), event.getServletContext());
                bayeux.setOption(BayeuxServerImpl.TRANSPORTS_OPTION,
                        JettyWebSocketTransport.class.getName() + "," + JSONHttpTransport.class.getName());
                bayeux.setOption("ws.cometdURLMapping", MAPPING);
                bayeux.setOption("ws.idleTimeout", "300000");
                bayeux.setOption(AbstractServerTransport.JSON_CONTEXT_OPTION, JacksonJSONContextServer.class.getName());
                bayeux.setOption(AbstractServerTransport.TIMEOUT_OPTION, "30000");
                bayeux.setOption("maxSessionsPerBrowser", "-1");
                bayeux.addExtension(new AcknowledgedMessagesExtension());
                try {
                    bayeux.start();
                } catch (Exception x) {
                    throw new IllegalStateException(x);
                }
                event.getServletContext().setAttribute(BayeuxServer.ATTRIBUTE, bayeux);
            }
        };
    }
}
