<%@ page contentType="text/plain" session="false" %>nothing
