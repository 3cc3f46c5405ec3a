# Draws the figures of C14 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'front.svg'
set title 'lowest utility against changes, by the price of a change' noenhanced
set xlabel 'changes a cycle' noenhanced
set ylabel 'lowest utility' noenhanced
plot for [column=2:4] 'front.csv' using 1:column with points title columnheader(column) noenhanced

set output 'figure-5.13-changes.svg'
set title 'changes by cycle (seed 1)' noenhanced
set xlabel 'cycle' noenhanced
set ylabel 'changes' noenhanced
plot for [column=2:7] 'figure-5.13-changes.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.13-lowest.svg'
set title 'lowest utility by cycle (seed 1)' noenhanced
set xlabel 'cycle' noenhanced
set ylabel 'lowest utility' noenhanced
plot for [column=2:7] 'figure-5.13-lowest.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced

set output 'figure-5.13-average.svg'
set title 'average utility by cycle (seed 1)' noenhanced
set xlabel 'cycle' noenhanced
set ylabel 'average utility' noenhanced
plot for [column=2:7] 'figure-5.13-average.csv' using 1:column with linespoints pointsize 0.4 title columnheader(column) noenhanced
