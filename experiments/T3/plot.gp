# Draws the figures of T3 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-3.9.svg'
set title 'throughput, World Cup' noenhanced
set xlabel 'clients' noenhanced
set ylabel 'requests per second' noenhanced
plot for [column=2:6] 'figure-3.9.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-3.10.svg'
set title 'throughput, videos' noenhanced
set xlabel 'clients' noenhanced
set ylabel 'requests per second' noenhanced
plot for [column=2:6] 'figure-3.10.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
